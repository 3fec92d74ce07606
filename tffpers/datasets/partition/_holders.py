"""Who holds which class, drawn so that classes and clients are served evenly."""

import numpy as np


def draw_holders(
  num_classes: int, num_clients: int, classes_per_client: int, seed: int
) -> list[np.ndarray]:
  """The distinct classes of each client; every class has ⌊N·k/C⌋ or ⌈N·k/C⌉ holders.

  Where C does not divide N·k, the classes with one holder more are spread evenly over
  clients too, since a class with more holders gives less to each.

  Args:
    num_classes: C.
    num_clients: N.
    classes_per_client: k, in [1, C].
    seed: Non-negative seed.

  Returns:
    N arrays, int64 [k].
  """
  rng = np.random.default_rng(seed)
  classes = rng.permutation(num_classes)
  holders, extra = divmod(num_clients * classes_per_client, num_classes)
  # The first `extra` classes have holders + 1 each: that many slots, shared by the clients.
  slots, bonus = divmod(extra * (holders + 1), num_clients)
  takes = slots + (rng.permutation(num_clients) < bonus)
  more = _in_passes(classes[:extra], takes, rng)
  fewer = _in_passes(classes[extra:], classes_per_client - takes, rng)
  return [np.concatenate(pair) for pair in zip(more, fewer, strict=True)]


def _in_passes(
  classes: np.ndarray, takes: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
  """Deals shuffled classes, all once before any again; takes[j] distinct ones to client j.

  A client whose turn falls on the end of a pass takes what it still needs of the next
  pass from the classes it does not have yet.
  """
  dealt = []
  left = rng.permutation(classes)
  for take in takes:
    mine, left = left[:take], left[take:]
    if len(mine) < take:
      fresh = rng.permutation(np.setdiff1d(classes, mine))[: take - len(mine)]
      mine = np.concatenate([mine, fresh])
      left = rng.permutation(np.setdiff1d(classes, fresh))
    dealt.append(mine)
  return dealt

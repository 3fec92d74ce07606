import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tffpers.simulation import sampling

IDS = [f'c{i}' for i in range(20)]


def test_f9_all_clients_are_sampled_alike():
  sample = sampling.uniform(IDS, 3, seed=1)
  rounds = [sample(r) for r in range(1, 201)]
  counts = collections.Counter(key for chosen in rounds for key in chosen)
  assert all(len(set(chosen)) == 3 for chosen in rounds)
  assert all(15 <= counts[key] <= 45 for key in IDS)


def test_f9_a_round_s_clients_depend_on_seed_and_round_only():
  sample, again = sampling.uniform(IDS, 3, seed=1), sampling.uniform(IDS[::-1], 3, seed=1)
  assert [again(r) for r in (7, 3)] == [sample(r) for r in (7, 3)]
  assert sampling.uniform(IDS, 3, seed=2)(7) != sample(7)
  assert sampling.uniform(IDS, None, seed=1)(1) == sorted(IDS)


@pytest.mark.parametrize('size', [0, 21])
def test_f9_more_clients_than_there_are_is_an_error(size):
  with pytest.raises(ValueError, match=f'between 1 and .* 20. Received: clients_per_round={size}'):
    sampling.uniform(IDS, size, seed=1)


@pytest.mark.parametrize(
  ('chosen', 'size', 'message'),
  [
    (['c1', 'c1', 'c2'], None, r"twice: \['c1'\]"),
    (['c1', 'x'], None, r"unknown: \['x'\]"),
    (['c1'], 2, 'round 5 with 1 clients'),
  ],
)
def test_f5_a_sampler_that_breaks_the_rules_is_refused(chosen, size, message):
  with pytest.raises(ValueError, match=message):
    sampling.checked(lambda r: chosen, IDS, size)(5)


def test_a_sampler_s_order_does_not_matter():
  assert sampling.checked(lambda r: iter(['c2', 'c10']), IDS, None)(1) == ['c10', 'c2']


@pytest.mark.parametrize(
  ('fraction', 'clients', 'expected'),
  [(0.07, 100, 7), (0.1, 200, 20), (0.03, 182, 6), (1.0, 20, 20), (0.001, 20, 1), (0.5, 3, 2)],
)
def test_b8_exactly_k_s_distinct_clients(fraction, clients, expected):
  size = sampling.clients_of_fraction(fraction, clients)
  assert size == expected
  sample = sampling.uniform([str(k) for k in range(clients)], size, seed=3)
  assert all(len(sample(r)) == len(set(sample(r))) == expected for r in range(1, 20))


@given(st.integers(1, 100), st.integers(1, 2000))
def test_b8_k_s_is_the_exact_ceiling_of_a_fraction_in_hundredths(hundredths, clients):
  exact = max(1, -(-hundredths * clients // 100))
  assert sampling.clients_of_fraction(hundredths / 100, clients) == exact


@pytest.mark.parametrize(('fraction', 'clients'), [(0, 5), (1.1, 5), (float('nan'), 5), (0.5, 0)])
def test_b8_a_fraction_out_of_range_is_refused(fraction, clients):
  with pytest.raises(ValueError, match='Received: '):
    sampling.clients_of_fraction(fraction, clients)

"""The models that a clustered algorithm starts from: J models from J seeds."""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from tffpers import modelling, seeds

Draw: TypeAlias = Callable[[tf.Tensor], modelling.ModelWeights]


def initial_weights(spec: modelling.ModelSpec) -> Draw:
  """A model's initial values as a function of a seed, in any graph and inside loops.

  Args:
    spec: The model.

  Returns:
    From int32[2] to the values that `modelling.bind` draws from it, bit for bit.
  """
  with tf.Graph().as_default() as graph:
    seed = tf.compat.v1.placeholder(tf.int32, [2], 'seed')
    initial = tf.nest.map_structure(tf.identity, modelling.bind(spec, seed).initial)
  tensors = tf.nest.flatten(initial)
  definition = _needed_for(graph.as_graph_def(), [seed.op.name, *(t.op.name for t in tensors)])

  def draw(seed_value: tf.Tensor) -> modelling.ModelWeights:
    values = tf.graph_util.import_graph_def(
      definition,
      input_map={seed.name: tf.convert_to_tensor(seed_value)},
      return_elements=[t.name for t in tensors],
      name='initial_weights',
    )
    shaped = [tf.ensure_shape(v, t.shape) for v, t in zip(values, tensors, strict=True)]
    return tf.nest.pack_sequence_as(initial, shaped)

  return draw


def _needed_for(definition: tf.compat.v1.GraphDef, names: list[str]) -> tf.compat.v1.GraphDef:
  """The part of a graph that computes the named nodes: without the model's variables."""
  nodes, needed = {node.name: node for node in definition.node}, set()
  while names:
    name = names.pop().lstrip('^').partition(':')[0]
    if name not in needed:
      needed.add(name)
      names.extend(nodes[name].input)
  part = tf.compat.v1.GraphDef(versions=definition.versions, library=definition.library)
  part.node.extend(node for node in definition.node if node.name in needed)
  return part


def model_seed(seed: tf.Tensor, number: int) -> tf.Tensor:
  """Seed of a start's model; that of model 0 is the start's own, as with a single model."""
  return seeds.fold(seed, number) if number else tf.convert_to_tensor(seed)


def draw_models(draw: Draw, seed: tf.Tensor, num_models: int) -> modelling.ModelWeights:
  """All models of a start, stacked along a leading axis [J]."""
  models = [draw(model_seed(seed, j)) for j in range(num_models)]
  return tf.nest.map_structure(lambda *values: tf.stack(values), *models)


def check_distinct(draw: Draw, num_models: int) -> None:
  """Refuses a model whose initial values do not depend on the seed.

  Raises:
    ValueError: Two of the J initial models are the same.
  """
  if num_models == 1:
    return
  first, second = (
    tf.nest.flatten(tf.function(draw)(tf.constant([0, k])).trainable) for k in range(2)
  )
  if all(bool(tf.reduce_all(tf.equal(a, b))) for a, b in zip(first, second, strict=True)):
    raise ValueError(
      'The initial models are identical, so no client could ever tell them apart; expected '
      'initial values that depend on the seed, as those of Keras’ random initialisers do. '
      f'Received: num_models={num_models} with a model_fn whose initial values are constant'
    )

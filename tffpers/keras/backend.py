"""The Keras of the user's TensorFlow: the only module that chooses one.

`tf.keras` is Keras 2 up to TensorFlow 2.15, Keras 3 from 2.16 on, and `tf_keras`
where `TF_USE_LEGACY_KERAS=1`. Every layer here subclasses that Keras' `Layer`.
"""

from typing import Any

import tensorflow as tf

keras = tf.keras

_IS_KERAS_3 = hasattr(keras, 'ops')
if _IS_KERAS_3 and keras.config.backend() != 'tensorflow':
  raise ImportError(
    "tffpers.keras computes with TensorFlow; expected the Keras backend 'tensorflow'. "
    f'Received: backend={keras.config.backend()!r}'
  )

# `add_weight` arguments that keep a variable in its own dtype under a mixed policy.
NO_AUTOCAST: dict[str, Any] = (
  {'autocast': False} if _IS_KERAS_3 else {'experimental_autocast': False}
)

# Masks are also computed on symbolic Keras tensors, which Keras 3 hides from TensorFlow.
not_equal = keras.ops.not_equal if _IS_KERAS_3 else tf.not_equal

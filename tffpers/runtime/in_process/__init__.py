"""Evaluates TFF computations with TensorFlow in this process."""

from tffpers.runtime.in_process.arguments import ArgumentError
from tffpers.runtime.in_process.clients import ClientError
from tffpers.runtime.in_process.context import InProcessContext

__all__ = ['ArgumentError', 'ClientError', 'InProcessContext']

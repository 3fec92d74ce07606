import pytest

from tffpers import runtime


@pytest.fixture(params=['in_process', 'native'])
def any_runtime(request):
  with runtime.running(request.param):
    yield request.param


@pytest.fixture
def in_process():
  with runtime.running('in_process'):
    yield

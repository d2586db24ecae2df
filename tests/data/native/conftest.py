"""The native decoder, if it was built."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from resnet_recipes.data.native import Engine, find_engine_fault


@pytest.fixture(scope="session")
def require_engine() -> None:
    if why := find_engine_fault():
        pytest.skip(f"the native library {why}: python setup.py build_ext --inplace")


@pytest.fixture
def engine(require_engine: None) -> Iterator[Engine]:
    with closing(Engine(2)) as two_threads:
        yield two_threads

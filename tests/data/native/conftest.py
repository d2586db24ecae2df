"""The native decoder, if it was built."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from resnet_recipes.data.native import NativeDecoder, find_decoder_fault


@pytest.fixture(scope="session")
def require_decoder() -> None:
    if why := find_decoder_fault():
        pytest.skip(f"the native library {why}: python setup.py build_ext --inplace")


@pytest.fixture
def decoder(require_decoder: None) -> Iterator[NativeDecoder]:
    with closing(NativeDecoder(2)) as two_threads:
        yield two_threads

"""The native engine, where it has been built."""

import pytest

from resnet_recipes.data.native.library import why_not


@pytest.fixture(scope="session")
def built() -> None:
    """Skip tests of the native library where it was not built."""
    if why := why_not():
        pytest.skip(f"the native library {why}: python setup.py build_ext --inplace")

"""The native engine, where it has been built."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.library import why_not


@pytest.fixture(scope="session")
def built() -> None:
    """Skip tests of the native library where it was not built."""
    if why := why_not():
        pytest.skip(f"the native library {why}: python setup.py build_ext --inplace")


@pytest.fixture
def engine(built: None) -> Iterator[Engine]:
    """An engine of two threads."""
    with Engine(2) as made:
        yield made


@pytest.fixture(scope="session")
def photographs() -> list[Path]:
    """Some 50 JPEGs of the folder that RESNET_RECIPES_TEST_DATA names."""
    root = os.environ.get("RESNET_RECIPES_TEST_DATA")
    if not root:
        pytest.skip("RESNET_RECIPES_TEST_DATA names no folder of photographs")
    return sorted(path for path in Path(root).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[::8][:50]

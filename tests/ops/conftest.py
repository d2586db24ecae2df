"""Whether kernels are interpreted is decided when they are imported, so the interpreter has a process of its own."""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore = ["interpreted"]        # run by test_interpreted.py


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that only `-m exhaustive` asks for."""
    if "exhaustive" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]

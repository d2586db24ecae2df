"""Loaded first by every pytest process; fixtures.py contains the fixtures of all tests."""

import gc
import os

import pytest

from resnet_recipes.base.cores import count_cores

# Divide the cores among the pytest processes, and so among the processes that tests start. It has
# to happen here: another conftest.py may import torch, which reads the variable only once.
if count := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ["OMP_NUM_THREADS"] = str(max(1, count_cores() // int(count)))

# Collections wait until all imports are done: scanning imported objects takes a sixth of the time.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures.

    The xdist controller runs no test, so its workers do not wait until it has imported torch.
    """
    if config.getoption("numprocesses", None):
        return
    os.environ.pop("COLUMNS", None)  # as in a pipe, where lines are not wrapped
    config.pluginmanager.import_plugin("tests.shared.fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that require `-m exhaustive`, and put the slow tests first.

    Otherwise one worker might still run a slow test when all others have finished.
    """
    if "exhaustive" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Enable garbage collection, except for the imported objects."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Unfreeze imported objects, so that libraries find no leaks when Python exits."""
    gc.unfreeze()

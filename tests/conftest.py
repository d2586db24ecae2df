"""What every process of pytest reads first; the fixtures of all tests are in fixtures.py."""

import gc
import os

import pytest

from resnet_recipes.base.cores import cores

# Share the cores among pytest's own processes, and so among those that their tests start: now, as
# another conftest.py may import torch, which asks only once.
if count := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // int(count)))

gc.disable()  # until everything is imported, which stays: a sixth of the time is for looking at it


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures.

    xdist's controller runs no test: its workers do not wait until it has imported torch.
    """
    if config.getoption("numprocesses", None):
        return
    os.environ.pop("COLUMNS", None)  # as in a pipe, where lines are not wrapped
    config.pluginmanager.import_plugin("tests.fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that only `-m exhaustive` asks for; begin with the slow ones.

    So no worker is left alone with one of them in the end.
    """
    if "exhaustive" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but none of what is imported."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let libraries that look for leaks when Python ends see none."""
    gc.unfreeze()

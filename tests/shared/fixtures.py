"""Fixtures of all tests: runs, commands, processes. Functions to import are in other modules."""

import atexit
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from resnet_recipes import cli
from resnet_recipes.run_folder import lock
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.run import Run
from tests.shared.forks import ForkServer
from tests.shared.launcher import Launcher
from tests.shared.plans import plan_recipe
from tests.shared.run_folders import create_folder_with_weights
from tests.shared.tiny_networks import build_shallow_resnet18

FORKS = pytest.StashKey[ForkServer]()


def pytest_configure(config: pytest.Config) -> None:
    """Restore signals that nohup or a background shell ignores, since runs would also ignore them.

    Also shortens the wait for a folder in use, and starts the fork server while this process has no
    OpenMP threads and has not used a GPU.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    lock.MAX_RETRY_SECONDS = 0.2
    config.stash[FORKS] = ForkServer()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the fork server, and end an xdist worker before it unloads torch.

    All its results are reported at this point. Unloading takes seconds, and the controller would
    wait for it.
    """
    config.stash[FORKS].close()
    if hasattr(config, "workerinput"):
        atexit._run_exitfuncs()
        os._exit(0)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return up to 50 JPEGs from the folder in RESNET_RECIPES_TEST_DATA, or generated images."""
    root = os.environ.get("RESNET_RECIPES_TEST_DATA")
    if not root:
        root = tmp_path_factory.mktemp("drawn")
        for number, size in enumerate([(500, 375), (333, 480)] * 4):
            coarse = np.random.default_rng(number).integers(0, 256, (75, 100, 3), np.uint8)
            Image.fromarray(coarse).resize(size).save(root / f"{number}.jpg", quality=95)
    files = sorted(
        path for path in Path(root).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    assert files, f"no photographs in {root}"
    return files[:: max(1, len(files) // 50)][:50]


@pytest.fixture(autouse=True, scope="session")
def use_own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the speeds of test runs out of the user's cache, also in started processes."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def set_free_space(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the free bytes of all disks, of one block each."""

    def set_space(size: int) -> None:
        status = os.statvfs_result((1, 1, 1, 0, size, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: status)

    return set_space


@pytest.fixture
def make_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Return a function that builds a run of a shallow ResNet-18 on the CPU.

    Every run is closed after the test.
    """
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    runs: list[Run] = []

    def make(line: str = "", **changes: Any) -> Run:
        runs.append(build(plan_recipe(line, **changes), Rank(0, 1, torch.device("cpu"))))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def folder_with_weights(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """The folder `mine` of a run with BlurPool and random weights; its images are in `images`."""
    return create_folder_with_weights(make_run, tmp_path / "mine", methods={"blurpool": {}})


class Streams(NamedTuple):
    out: str
    err: str


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Streams]:
    """Return a function that runs a command line, checks its exit code, and returns its output."""

    def run(line: str, code: int = 0) -> Streams:
        program, *arguments = shlex.split(line)
        capsys.readouterr()
        ended = {"resnet-train": cli.train, "resnet-recipes": cli.main}[program](arguments)
        streams = Streams(*capsys.readouterr())
        assert ended == code, streams
        return streams

    return run


@pytest.fixture
def run_json(run_command: Callable[..., Streams]) -> Callable[..., Any]:
    return lambda line, code=0: json.loads(run_command(f"{line} --json", code).out)


@pytest.fixture(scope="session")
def forks(pytestconfig: pytest.Config) -> ForkServer:
    """A source of processes that start in milliseconds."""
    return pytestconfig.stash[FORKS]


@pytest.fixture(scope="session")
def launcher(forks: ForkServer) -> Launcher:
    """The package's launcher, whose ranks start in milliseconds."""
    return Launcher(forks)

"""The processes of a recipe, and the commands that start them."""

import os
import platform
import subprocess
import sys
import tempfile
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace

import pytest

from resnet_recipes import cuda
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.cuda import VisibleGpus
from resnet_recipes.doctor import Finding, unused_gpu
from resnet_recipes.jobs.ranks import group
from resnet_recipes.jobs.ranks.group import (
    ALLOCATOR_VARIABLES,
    MAX_TMPDIR,
    Group,
    build_command,
    build_environments,
    count_ranks,
    iterate_warnings,
    make_group,
)
from resnet_recipes.recipe.sections import LaunchConfig
from tests.shared.checks import get_error
from tests.shared.tables import parse_values

RUN = Path("runs/a")


@pytest.mark.parametrize(
    ("config", "ranks"),
    parse_values(
        """
{} | 4
{gpus: 2} | 2
{device: cpu} | 1
{device: cpu, gpus: 3} | 3
"""
    ),
)
def test_group_has_a_rank_per_gpu_unless_set(config, ranks, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(4))
    assert make_group(LaunchConfig(**config)).ranks == ranks
    message = r"launch\.gpus=8: this machine has 4 GPUs\n +use: +gpus=4\n.*recipes plan` with"
    with pytest.raises(NotReadyError, match=message):
        make_group(LaunchConfig(gpus=8))


def test_group_rejects_gpus_on_a_machine_without_gpus(monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(0))
    monkeypatch.setattr(unused_gpu, "find_unused_gpu", lambda: None)
    with pytest.raises(NotReadyError, match=r"launch\.device=cuda: torch sees no GPU"):
        make_group(LaunchConfig(device="cuda"))
    with pytest.raises(
        NotReadyError,
        match=r"launch\.gpus=8: torch sees no GPU on this machine\n.*launch\.device=cpu gpus=auto",
    ):
        make_group(LaunchConfig(gpus=8))
    assert make_group(LaunchConfig()).ranks == 1
    assert make_group(LaunchConfig(device="cpu", gpus=8)).ranks == 8


def test_count_ranks_ignores_missing_gpus(monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(0))
    assert count_ranks(LaunchConfig(gpus=8)) == 8
    assert count_ranks(LaunchConfig(device="cuda")) == 1


def test_group_reports_all_that_is_missing(monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(0))
    monkeypatch.setattr(tempfile, "tempdir", "/" + "a" * MAX_TMPDIR)
    error = get_error(NotReadyError, make_group, LaunchConfig(gpus=8))
    keys = [problem.key.partition("=")[0] for problem in error.problems]
    assert keys == ["TMPDIR", "launch.gpus"]


def test_group_rejects_unusable_gpus_with_reason(monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(0))
    monkeypatch.setattr(
        unused_gpu, "find_unused_gpu", lambda: Finding("fix", "it is hidden", "unset X")
    )
    message = r"it is hidden\n.*unset X\n +use: +launch\.device=cpu"
    for config in (LaunchConfig(device="cuda"), LaunchConfig(gpus=2)):
        with pytest.raises(NotReadyError, match=message):
            make_group(config)


def test_group_rejects_temporary_folder_too_long_for_sockets(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/" + "a" * (MAX_TMPDIR - 1))
    assert make_group(LaunchConfig(device="cpu")).ranks == 1
    monkeypatch.setattr(tempfile, "tempdir", "/" + "a" * MAX_TMPDIR)
    with pytest.raises(NotReadyError, match=r"TMPDIR=/a+ is longer than 75 bytes"):
        make_group(LaunchConfig(device="cpu"))


def test_longest_temporary_folder_holds_a_socket(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        longest = Path(folder, "a" * (MAX_TMPDIR - 1 - len(folder)))
        longest.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(longest))
        with Listener(tempfile.mktemp(prefix="listener-", dir=tempfile.mkdtemp(prefix="pymp-"))):
            pass


def test_rank_command_has_only_its_folder():
    assert build_command(RUN)[1:] == ["-m", "resnet_recipes.jobs", "runs/a"]


def test_group_warnings_name_unused_gpus(monkeypatch):
    monkeypatch.setattr(group, "find_unused_gpu", lambda: None)
    monkeypatch.setattr(group, "find_untested_machine", lambda: None)
    assert list(iterate_warnings(LaunchConfig())) == []
    monkeypatch.setattr(group, "find_unused_gpu", lambda: Finding("fix", "it is hidden", "unset X"))
    monkeypatch.setattr(group, "find_untested_machine", lambda: Finding("warn", "a Mac"))
    messages = ["NO GPU IS USED: it is hidden; unset X", "UNTRIED: a Mac"]
    assert list(iterate_warnings(LaunchConfig())) == messages
    assert list(iterate_warnings(LaunchConfig(device="cpu"))) == []


def test_rank_environments_override_inherited_rank_variables(monkeypatch):
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("WORLD_SIZE", "-3")
    ranks = build_environments(Group(3), attempt=2)
    identities = [(rank["RANK"], rank["LOCAL_RANK"], rank["WORLD_SIZE"]) for rank in ranks]
    assert identities == [(str(i), str(i), "3") for i in range(3)]
    assert {rank["TORCHELASTIC_RESTART_COUNT"] for rank in ranks} == {"2"}
    assert not any(name.startswith("RESNET_RECIPES_") for rank in ranks for name in rank)


def test_rank_environments_keep_variables_and_set_safe_path(monkeypatch):
    mine = {
        "OMP_NUM_THREADS": "7",
        "GLOO_SOCKET_IFNAME": "eth7",
        "GLIBC_TUNABLES": "glibc.malloc.check=1",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
    }
    for name, value in mine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cuda, "has_nvml", lambda: True)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    environment, _ = build_environments(Group(2), attempt=0)
    assert mine.items() <= environment.items()
    assert environment["PYTHONSAFEPATH"] == "1"
    assert "PYTORCH_ALLOC_CONF" not in environment
    monkeypatch.delenv("OMP_NUM_THREADS")
    environment, _ = build_environments(Group(2), attempt=0)
    assert int(environment["OMP_NUM_THREADS"]) >= 1


@pytest.mark.parametrize(
    ("status", "expected"), [(0, "expandable_segments:True"), (1, None), (None, None)]
)
def test_allocator_uses_expandable_segments_with_nvml(status, expected, monkeypatch):
    def load_library(name: str) -> SimpleNamespace:
        if status is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(nvmlInit_v2=lambda: status)

    monkeypatch.setattr(cuda.ctypes, "CDLL", load_library)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    environment, _ = build_environments(Group(2), attempt=0)
    assert environment.get("PYTORCH_ALLOC_CONF") == expected


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc is meant")
def test_allocator_variables_make_malloc_reuse_freed_memory():
    """Each of five buffers of 64 MiB uses 32 huge pages, or otherwise 16,384 new small pages."""
    program = """
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(b"x") * (64 << 20)
before = faults()
for _ in range(5):
    bytearray(b"x") * (64 << 20)
print(faults() - before)
"""
    faults = []
    for environment in (ALLOCATOR_VARIABLES, {}):
        bare = {
            name: value for name, value in os.environ.items() if name not in ALLOCATOR_VARIABLES
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=bare | environment, capture_output=True, check=True
        )
        faults.append(int(done.stdout))
    with_variables, without = faults
    assert with_variables < 20
    assert without > 10 * with_variables

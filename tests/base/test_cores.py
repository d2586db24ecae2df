"""The cores, their speed-up and the available memory of this machine."""

import pytest

from resnet_recipes.base import cores
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("flags", "emulated"),
    parse_rows(
        """
flags : fma avx2 | bf16 fp16
flags : avx512f avx512_bf16 amx_bf16 | fp16
Features : asimd asimdhp | bf16
"""
    ),
)
def test_dtype_without_cpu_instructions_is_emulated(flags, emulated, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "cpuinfo")
    cores.CPUINFO.write_text(flags)
    types = "auto", "fp32", "bf16", "fp16"
    assert [dtype for dtype in types if cores.is_emulated(dtype)] == emulated.split()
    cores.CPUINFO.unlink()  # a system without this file
    assert not cores.is_emulated("bf16")


def test_rank_threads_split_cores_unless_set_by_user(monkeypatch):
    monkeypatch.setattr(cores, "count_cores", lambda: 16)
    monkeypatch.delenv(cores.THREADS_VARIABLE, raising=False)
    assert [cores.count_threads(ranks) for ranks in (1, 3, 32)] == [16, 5, 1]
    assert [cores.count_training_cores(ranks) for ranks in (1, 3, 32)] == [16, 15, 16]
    monkeypatch.setenv(cores.THREADS_VARIABLE, "7")
    assert cores.count_threads(3) == 7
    assert [cores.count_training_cores(ranks) for ranks in (1, 2, 3)] == [7, 14, 16]
    monkeypatch.setenv(cores.THREADS_VARIABLE, "4,2")
    assert cores.count_threads(1) == 4
    monkeypatch.setenv(cores.THREADS_VARIABLE, "0")
    assert cores.count_threads(2) == 8


def test_estimate_speedup_adds_fifth_per_second_thread(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "count_cores", lambda: 32)
    (tmp_path / "active").write_text("1\n")
    monkeypatch.setattr(cores, "SMT", tmp_path / "active")
    assert [cores.estimate_speedup(threads) for threads in (8, 16, 32, 99)] == pytest.approx(
        [8, 16, 19.2, 19.2]
    )


#: Control groups of a process in the root group, as in /proc/self/cgroup.
ROOT_GROUP = "0::/"


def write_limit(folder, most: object, used: int, stat: str) -> None:
    """Write the files of a control group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


def test_file_cache_counts_as_available_memory_in_containers(tmp_path):
    assert cores.get_group_memory(tmp_path, ROOT_GROUP) == cores.NO_LIMIT
    write_limit(tmp_path, "max", 900, "")
    assert cores.get_group_memory(tmp_path, ROOT_GROUP) == cores.NO_LIMIT
    write_limit(tmp_path, 1000, 900, "anon 300\nfile 600\n")
    assert cores.get_group_memory(tmp_path, ROOT_GROUP) == 700
    write_limit(tmp_path, 1000, 900, "anon 900\n")
    assert cores.get_group_memory(tmp_path, ROOT_GROUP) == 100


def test_shared_memory_counts_as_used_memory_in_containers(tmp_path):
    write_limit(tmp_path, 1000, 900, "anon 300\nfile 600\nshmem 500\n")
    assert cores.get_group_memory(tmp_path, ROOT_GROUP) == 200


def test_available_memory_obeys_the_lowest_cgroup_limit(tmp_path):
    write_limit(tmp_path / "slurm" / "job_1", 1000, 400, "")
    assert cores.get_group_memory(tmp_path, "0::/slurm/job_1/step_0") == 600
    write_limit(tmp_path / "slurm" / "job_1" / "step_0", 500, 400, "")
    assert cores.get_group_memory(tmp_path, "0::/slurm/job_1/step_0") == 100
    assert cores.get_group_memory(tmp_path, "0::/slurm") == cores.NO_LIMIT


def test_cgroup_v1_memory_limit_is_read(tmp_path):
    (tmp_path / "memory").mkdir()
    for name, text in {
        "memory.limit_in_bytes": "1000\n",
        "memory.usage_in_bytes": "800\n",
        "memory.stat": "cache 1\ntotal_cache 500\ntotal_shmem 200\n",
    }.items():
        (tmp_path / "memory" / name).write_text(text)
    assert (
        cores.get_group_memory(tmp_path, "4:cpu,memory:/docker/abc\n9:name=systemd:/\n0::/") == 500
    )

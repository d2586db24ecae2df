"""What a machine lacks for a run is named."""

from collections import namedtuple

from resnet_recipes.doctor import run

Usage = namedtuple("Usage", "total used free")


def test_data_larger_than_memory_are_found(tmp_path, monkeypatch):
    (tmp_path / "train.beton").write_bytes(bytes(1000))
    for free, level in ((10_000, "ok"), (1000, "warn")):
        monkeypatch.setattr(run, "available_memory", lambda free=free: free)
        assert run._memory(tmp_path).level == level


def test_few_open_files_come_with_the_ulimit_to_type(monkeypatch):
    monkeypatch.setattr(run.resource, "getrlimit", lambda _: (1024, 2048))
    finding = run._files()
    assert (finding.level, finding.fix) == ("warn", "ulimit -n 2048")


def test_a_full_disk_must_be_put_right(tmp_path, monkeypatch):
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 10**6))
    finding = run._disk(tmp_path / "runs")
    assert finding.level == "fix"


def test_few_cores_for_many_gpus_are_found(monkeypatch):
    monkeypatch.setattr(run, "cores", lambda: 8)
    assert [run._cores(gpus).level for gpus in (0, 1, 4)] == ["ok", "ok", "warn"]


def test_small_shared_memory_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: Usage(64 << 20, 0, 64 << 20))
    finding = run._shared_memory(tmp_path)
    assert "--shm-size" in finding.fix


def test_the_whole_check_runs_here(tmp_path):
    assert run.check_run(tmp_path, tmp_path)

"""The doctor names missing requirements of a run."""

from types import SimpleNamespace

from resnet_recipes.doctor import Finding, run


def test_data_larger_than_memory_is_reported(tmp_path, monkeypatch):
    (tmp_path / "train.beton").write_bytes(bytes(1000))
    for free, level in ((10_000, "ok"), (1000, "warn")):
        monkeypatch.setattr(run, "get_available_memory", lambda free=free: free)
        memory = run.check_run(tmp_path)[-1]
        assert memory.level == level
    setting, _ = memory.fix
    assert setting == "data.order=quasi_random"


def test_low_file_limit_suggests_a_command(monkeypatch):
    usage = SimpleNamespace(total=64 << 20, free=10**6)
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(run.resource, "getrlimit", lambda _: (1024, 2048))
    monkeypatch.setattr(run, "count_cores", lambda: 8)
    for gpus, level in ((0, "ok"), (1, "ok"), (4, "warn")):
        monkeypatch.setattr(run.torch.cuda, "device_count", lambda gpus=gpus: gpus)
        files, cores, disk, memory, *shared = run.check_run()
        assert memory.what.startswith("free memory: ")
        assert files == Finding("warn", files.what, "ulimit -n 2048")
        assert (cores.level, disk.level) == (level, "fix")
        assert ["--shm-size" in finding.fix for finding in shared] == [True] * (gpus > 1)


def test_check_run_returns_findings_on_this_machine(tmp_path):
    assert run.check_run(tmp_path)


def test_one_core_is_printed_in_the_singular(monkeypatch):
    monkeypatch.setattr(run, "count_cores", lambda: 1)
    assert run.check_run()[1].what.split(" for ")[0] == "1 core"

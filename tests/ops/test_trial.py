"""Operations are tried in another process, once per machine."""

import ctypes
import errno
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.ops import MODULES, blur, trial

CPU = torch.device("cpu")
RIGHT, FAULTY = "blur", "faulty"
ALL_RIGHT = {RIGHT: "", FAULTY: ""}
NONE = {RIGHT: "no compiler", FAULTY: "no compiler"}


def try_operations(process: RankProcess) -> trial.Verdicts:
    """Try operations; the first reads invalid memory. Processes are forks."""
    MODULES[FAULTY] = SimpleNamespace(
        unfused=blur.unfused,
        fused=lambda *_: ctypes.string_at(0),
        make_samples=blur.make_samples,
    )
    return trial.run_trials([FAULTY, RIGHT], CPU, torch.float32, CPU)


def test_out_of_bounds_kernel_ends_only_its_process(launcher, tmp_path):
    (faults,) = launcher.call(tmp_path, 1, try_operations)
    assert faults == {FAULTY: "the process that tried it ended with SIGSEGV", RIGHT: ""}


def test_endless_kernel_is_stopped(monkeypatch):
    monkeypatch.setattr(trial, "MAX_TRIAL_SECONDS", 0.01)
    faults = trial.run_trials([RIGHT], CPU, torch.float32, CPU)
    assert faults == {RIGHT: "trying it takes more than 0.01 seconds"}


@pytest.fixture
def trial_verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine with a GPU; each trial returns the next verdicts from a list."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    coming: list[trial.Verdicts] = []
    monkeypatch.setattr(trial, "run_trials", lambda *_: coming.pop())
    return coming


def get_verdicts(dtype: torch.dtype = torch.bfloat16) -> trial.Verdicts:
    return trial.get_verdicts([RIGHT, FAULTY], torch.device("cuda", 0), dtype)


def test_trial_success_is_stored_until_its_key_changes(trial_verdicts, monkeypatch):
    trial_verdicts.append(ALL_RIGHT)
    assert [get_verdicts(), get_verdicts()] == [ALL_RIGHT] * 2
    for module, name, value in (
        (torch.cuda, "get_device_name", lambda device: "NVIDIA B200"),
        (trial, "DRIVERS", [__file__]),
        (torch, "__version__", "3.0"),
    ):
        trial_verdicts.append(ALL_RIGHT)
        monkeypatch.setattr(module, name, value)
        get_verdicts()
        assert not trial_verdicts
    trial_verdicts.append(ALL_RIGHT)
    get_verdicts(torch.float16)
    assert not trial_verdicts


@pytest.mark.parametrize("later", [101.0, -86_300.0])  # the clock may be set back
def test_trial_failure_is_tried_again_by_next_run(later, trial_verdicts, monkeypatch):
    trial_verdicts += [ALL_RIGHT, NONE]
    monkeypatch.setattr(trial.time, "time", lambda: 100.0)
    # the second rank started before the first ended
    assert [get_verdicts(), get_verdicts()] == [NONE] * 2
    monkeypatch.setattr(trial.time, "time", lambda: later)
    assert get_verdicts() == ALL_RIGHT


def test_trial_ignores_damaged_record_and_readonly_folder(trial_verdicts, monkeypatch, tmp_path):
    trial_verdicts += [NONE, ALL_RIGHT, ALL_RIGHT]
    get_verdicts()
    (record,) = tmp_path.rglob("*.json")
    record.write_text('{"verdicts": 3}')
    assert get_verdicts() == ALL_RIGHT
    monkeypatch.setenv("XDG_CACHE_HOME", str(record))  # not a folder
    assert get_verdicts() == NONE


def test_trial_on_full_disk_runs_without_being_stored(trial_verdicts, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trial.atomic, "write_text", fail)
    trial_verdicts.append(ALL_RIGHT)
    assert get_verdicts() == ALL_RIGHT

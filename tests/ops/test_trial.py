"""Operations are tried in another process, once for each machine."""

import ctypes
import errno
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.jobs.rank import RankProcess
from resnet_recipes.ops import FUSED, blur, trial

CPU = torch.device("cpu")
RIGHT, FAULTY = "blur", "faulty"
ALL_RIGHT, NONE = {RIGHT: "", FAULTY: ""}, {RIGHT: "no compiler", FAULTY: "no compiler"}


def tried(process: RankProcess) -> trial.Verdicts:
    """Try operations of which the first reads from where nothing is; other processes are forks."""
    FUSED[FAULTY] = SimpleNamespace(
        plain=blur.plain, fused=lambda *_: ctypes.string_at(0), samples=blur.samples
    )
    return trial.verdicts([FAULTY, RIGHT], CPU, torch.float32, CPU)


def test_a_kernel_that_reads_out_of_bounds_ends_only_the_process_that_tries_it(nursery, tmp_path):
    (found,) = nursery.call(tmp_path, 1, tried)
    assert found == {FAULTY: "the process that tried it ended with SIGSEGV", RIGHT: ""}


def test_a_kernel_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.01)
    found = trial.verdicts([RIGHT], CPU, torch.float32, CPU)
    assert found == {RIGHT: "trying it takes more than 0.01 seconds"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine with a GPU; the verdicts of each trial are what is in the list."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    coming: list[trial.Verdicts] = []
    monkeypatch.setattr(trial, "verdicts", lambda *_: coming.pop())
    return coming


def recalled(dtype: torch.dtype = torch.bfloat16) -> trial.Verdicts:
    return trial.recall([RIGHT, FAULTY], torch.device("cuda", 0), dtype)


def test_success_is_kept_until_anything_that_it_depends_on_changes(machine, monkeypatch):
    machine.append(ALL_RIGHT)
    assert [recalled(), recalled()] == [ALL_RIGHT] * 2
    for place, name, value in (
        (torch.cuda, "get_device_name", lambda device: "NVIDIA B200"),
        (trial, "DRIVERS", [__file__]),
        (torch, "__version__", "3.0"),
    ):
        machine.append(ALL_RIGHT)
        monkeypatch.setattr(place, name, value)
        recalled()
        assert not machine
    machine.append(ALL_RIGHT)
    recalled(torch.float16)
    assert not machine


def test_a_failure_is_tried_again_by_the_next_run_but_not_by_those_who_waited(machine, monkeypatch):
    machine += [ALL_RIGHT, NONE]
    monkeypatch.setattr(trial.time, "time", lambda: 100.0)
    assert [recalled(), recalled()] == [NONE] * 2  # the second began before the first had ended
    monkeypatch.setattr(trial.time, "time", lambda: 101.0)
    assert recalled() == ALL_RIGHT


def test_a_failure_that_a_fast_clock_has_dated_is_tried_again(machine, monkeypatch):
    machine += [ALL_RIGHT, NONE]
    monkeypatch.setattr(trial.time, "time", lambda: 86_500.0)
    assert recalled() == NONE
    monkeypatch.setattr(trial.time, "time", lambda: 100.0)  # set back
    assert recalled() == ALL_RIGHT


def test_a_damaged_record_is_replaced_and_a_folder_that_cannot_be_written_is_no_obstacle(
    machine, monkeypatch, tmp_path
):
    machine += [NONE, ALL_RIGHT, ALL_RIGHT]
    recalled()
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text('{"verdicts": 3}')
    assert recalled() == ALL_RIGHT
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))  # a file
    assert recalled() == NONE


def test_a_full_disk_keeps_nothing_and_tries_nothing_twice(machine, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trial.atomic, "write_text", full)
    machine.append(ALL_RIGHT)
    assert recalled() == ALL_RIGHT

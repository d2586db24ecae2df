"""An ending records who failed first, the reason and the fix."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.base.errors import BadValidationImageError, ExitCode, TrainingError
from resnet_recipes.run_folder.ending import (
    Ending,
    find_first_failure,
    is_lost_peer,
    make_ending,
    read_ending,
    write_ending,
)
from tests.shared.tables import parse_rows


def test_ending_round_trips_through_its_file(tmp_path):
    ending = Ending(
        1, 3, 40, "TrainingError", "no number", seconds=12.5, time=3.5, attempt=1, pid=7
    )
    write_ending(tmp_path / "endings/rank3.json", ending)
    assert read_ending(tmp_path / "endings/rank3.json") == ending
    assert [path.name for path in (tmp_path / "endings").iterdir()] == ["rank3.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"code": 1, "unknown": 2}'])
def test_read_ending_ignores_a_damaged_file(content, tmp_path):
    (tmp_path / "ending.json").write_text(content)
    assert read_ending(tmp_path / "ending.json") is None


def test_find_first_failure_skips_consequences():
    lost = Ending(
        1,
        0,
        error="RuntimeError",
        message="Connection closed by peer",
        time=1.0,
        is_consequence=True,
    )
    cause = Ending(1, 2, error="TrainingError", message="image file is truncated", time=2.0)
    later = Ending(1, 1, error="TrainingError", message="image file is truncated", time=3.0)
    saved = Ending(75, 3, time=0.5)
    assert find_first_failure([later, lost, cause, saved]) == cause
    assert find_first_failure([lost, saved]) == lost
    assert find_first_failure([saved, Ending(0, 4)]) is None
    endings = [Ending(3, rank, time=9.0 - rank) for rank in (2, 1, 3)]
    assert find_first_failure([lost, *endings]) == endings[1]


def make_error_class(name: str, base: type[Exception] = RuntimeError) -> type[Exception]:
    return type(name, (base,), {})


@pytest.mark.parametrize(
    ("module", "error", "is_loss"),
    [
        ("torch.distributed.distributed_c10d", RuntimeError("[gloo/pair.cc:534] anything"), True),
        ("torch.autograd.graph", RuntimeError("anything"), True),
        (
            "resnet_recipes.jobs.ranks.prepare",
            make_error_class("DistStoreError", make_error_class("DistError")),
            True,
        ),
        ("resnet_recipes.data.files", RuntimeError("igloo: connection closed by peer"), False),
        ("torch.autograd.graph", TrainingError("gloo"), False),
        ("torch.autograd.graph", make_error_class("OutOfMemoryError"), False),
    ],
)
def test_lost_peer_is_recognized_by_origin_not_text(module, error, is_loss):
    scope = {"__name__": module, "error": error}
    exec("def fail(): raise error", scope)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        scope["fail"]()
    assert is_lost_peer(caught.value) == is_loss


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        *parse_rows(
            """
OutOfMemoryError | CUDA out of memory. Tried to allocate 20 MiB | bn_size
AcceleratorError | CUDA error: uncorrectable ECC error encountered | Xid
AcceleratorError | CUDA error: unspecified launch failure | CUDA_VISIBLE_DEVICES
SIGBUS | the process was killed by SIGBUS | --shm-size
SIGBUS | the process was killed by SIGBUS | truncated
SIGKILL | the process was killed by SIGKILL | dmesg
OSError | image file is truncated (3 bytes not processed) | on_bad_image
DistNetworkError | The server socket has failed to bind: EADDRINUSE | MASTER_PORT
RuntimeError | operator torchvision::nms does not exist | torch and torchvision
OSError | [Errno 24] Too many open files | ulimit
OSError | [Errno 27] File too large | ulimit -f unlimited
RuntimeError | can't start new thread | ulimit -u unlimited
MemoryError | no message | ulimit -v unlimited
RuntimeError | DefaultCPUAllocator: can't allocate memory | batch.bn_size
OSError | [Errno 28] No space left on device | free some space
DistBackendError | NCCL error: unhandled system error | NCCL_DEBUG
"""
        ),
        ("ZeroDivisionError", "division by zero", ""),
        ("BadTrainingImageError", "a.jpg cannot be decoded: image file is truncated", ""),
    ],
)
def test_ending_has_hint_only_for_known_causes(error, message, hint):
    actual = Ending(1, error=error, message=message).hint
    assert hint in actual if hint else actual == ""


@pytest.mark.parametrize("code", [1, 3])
def test_ending_explain_escapes_control_characters(code):
    lines = Ending(code, 0, 5, "TrainingError", "image \x1b[2Jx.jpg\nis truncated").explain(
        Path("runs/\x1b"), ranks=1
    )
    assert "\x1b" not in "".join(lines)
    assert "is truncated" in lines[-1 if code == 3 else 2]


def test_ending_explain_orders_failure_cause_and_logs():
    lines = Ending(1, 5, 1234, "OSError", "image file is truncated: a.JPEG", seconds=761.0).explain(
        Path("runs/a b"), ranks=8
    )
    assert lines == [
        "rank 5 failed (OSError) 00:12:41 after start, after 1,234 steps; the other 7 ranks "
        "were stopped",
        "  image file is truncated: a.JPEG",
        "  hint:  replace the file, or skip it with data.on_bad_image=skip",
        "  log: runs/a b/logs/rank5.log",
        "  resume: resnet-train --resume 'runs/a b'",
    ]


@pytest.mark.parametrize(
    ("error", "last"),
    [
        ("TrainingError", "  resume: resnet-train --resume a"),
        (
            "BadTrainingImageError",
            "  resume: resnet-train --resume a data.on_bad_image=skip",
        ),
    ],
)
def test_ending_explain_names_what_resumes_the_run(error, last):
    ending = Ending(1, 0, 1, error, "a.jpg is damaged")
    lines = ending.explain(Path("a"), ranks=1)
    assert lines[-2:] == ["  log: a/logs/rank0.log", last]
    assert lines[0] == "training failed 00:00:00 after start, after 1 step"
    task = ending.explain(Path("a"), ranks=1, trains=False)
    assert task[0] == "rank 0 failed 00:00:00 after start, after 1 step"


def test_damaged_validation_image_needs_a_new_run():
    ending = replace(make_ending(BadValidationImageError("a.jpg is damaged")), rank=0)
    assert ending.code == ExitCode.NOT_READY
    assert ending.explain(Path("a"), ranks=2) == [
        "error: a.jpg is damaged",
        "      hint:  replace or delete the image, then start a new run",
    ]
    assert ending.explain(Path("a"), ranks=2, trains=False) == ["error: a.jpg is damaged"]


def test_ending_explain_omits_ranks_for_user_errors():
    ending = Ending(2, 0, error="RecipeError", message="optimizer.lr=2: was 1")
    assert ending.explain(Path("runs/a"), 8) == ["error: optimizer.lr=2: was 1"]

"""When a run ends, and how the user receives its notes."""

from unittest.mock import Mock

import pytest

from resnet_recipes.training.run import Notes, Run, RunStatus

CONTINUE, FINISHED, INTERRUPTED = RunStatus.CONTINUE, RunStatus.FINISHED, RunStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("done", "is_asked", "is_pending", "top1", "expected"),
    [
        (6, False, False, 74.9, CONTINUE),
        (6, True, False, 74.9, INTERRUPTED),
        (6, True, False, 75.0, FINISHED),  # at its target a run is done, even after a stop request
        (7, True, False, 0.0, FINISHED),  # stop request in the last step: nothing is left to do
        (7, False, True, 0.0, INTERRUPTED),  # the last evaluation was interrupted
        (6, False, True, 80.0, INTERRUPTED),  # top1 comes from an earlier evaluation
    ],
)
def test_status_follows_steps_target_and_requests(done, is_asked, is_pending, top1, expected):
    plan = Mock(**{"recipe.evaluation.stop_at_top1": 75.0})
    parts = dict.fromkeys(Run.__dataclass_fields__, None)
    for derived in ("notes", "compilation"):
        del parts[derived]
    run = Run(**parts | {"plan": plan, "has_pending_evaluation": is_pending, "top1": top1})
    assert run.get_status(done, 7, is_asked) is expected


def test_notes_reach_the_listener_in_order():
    notes = Notes(["kernels are slow"])
    heard = []
    notes("a checkpoint was skipped")
    assert [*notes] == ["kernels are slow", "a checkpoint was skipped"]
    notes.listen(heard.append)
    notes("gradients are replayed")
    assert heard == ["kernels are slow", "a checkpoint was skipped", "gradients are replayed"]
    assert [*notes] == []

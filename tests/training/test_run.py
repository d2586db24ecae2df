"""When a run ends, and how the user receives its notes."""

from unittest.mock import Mock

import pytest

from resnet_recipes.training.run import Notes, Run, RunStatus
from tests.shared.tables import parse_values


@pytest.mark.parametrize(
    ("done", "is_asked", "is_pending", "top1", "expected"),
    parse_values("""
6 | false | false | 74.9 | CONTINUE
6 | true | false | 74.9 | INTERRUPTED
6 | true | false | 75.0 | FINISHED
7 | true | false | 0.0 | FINISHED
7 | false | true | 0.0 | INTERRUPTED
6 | false | true | 80.0 | INTERRUPTED
"""),
)
def test_status_follows_steps_target_and_requests(done, is_asked, is_pending, top1, expected):
    """A stop request changes nothing at the target of 75% or in the last step.

    A run with a pending evaluation is interrupted; its top1 comes from an earlier evaluation.
    """
    plan = Mock(**{"recipe.evaluation.stop_at_top1": 75.0})
    parts = dict.fromkeys(Run.__dataclass_fields__, None)
    for derived in ("notes", "compilation"):
        del parts[derived]
    run = Run(**parts | {"plan": plan, "has_pending_evaluation": is_pending, "top1": top1})
    assert run.get_status(done, 7, is_asked) is RunStatus[expected]


def test_notes_reach_the_listener_in_order():
    notes = Notes(["kernels are slow"])
    heard = []
    notes("a checkpoint was skipped")
    assert [*notes] == ["kernels are slow", "a checkpoint was skipped"]
    notes.listen(heard.append)
    notes("gradients are replayed")
    assert heard == ["kernels are slow", "a checkpoint was skipped", "gradients are replayed"]
    assert [*notes] == []

"""The trunk ends where the cool-down begins, and is shared by runs of all lengths."""

import pytest

from resnet_recipes.planning.trunk import chains, departures
from tests.planning.test_plan import planned, small
from tests.tables import rows

WSD = "schedule.name=wsd schedule.warmup=2ep"
RESIZING = "methods.progressive_resizing"


def of_length(epochs: int, words: str):
    """Return the plan of a run of 10 steps an epoch."""
    return planned(small(f"{WSD} max_duration={epochs}ep {words}"))


def test_a_trunk_ends_with_a_checkpoint_that_a_disk_must_have_room_for():
    plan = of_length(10, "schedule.cooldown=0.33dur checkpoint.interval=50ba")
    assert (plan.trunk, plan.total_steps) == (67, 100)
    assert [step for step in range(1, 101) if plan.saves_at(step)] == [50, 67, 100]
    cosine = planned(small("checkpoint.interval=50ba"))
    assert (cosine.trunk, cosine.disk.checkpoints) == (0, 2)
    assert plan.disk.checkpoints == 3


SHARED = """
methods.ema.half_life=40ba methods.ema.update_interval=1ep
methods.sam.interval=5 methods.mixup.alpha=0.3 methods.stochastic_depth={}
methods.progressive_resizing.delay=0.8dur methods.progressive_resizing.finetune=0.1dur
methods.progressive_resizing.stairs=[[0ep,0.5],[2ep,0.75],[0.9dur,1.0]]
schedule.cooldown=20ba
"""


@pytest.mark.parametrize("words", SHARED.strip().splitlines())
def test_lengths_share_what_does_not_depend_on_the_length(words):
    assert list(departures(of_length(10, words), of_length(20, words))) == []


OWN = """
schedule.warmup=0.1dur                       | schedule.warmup=10ba
methods.ema.half_life=0.05dur                | methods.ema.half_life=5ba
P.delay=0.5dur                               | P.delay=0.8dur P.finetune=0.1dur
P.stairs=[[0ep,0.5],[0.3dur,1.0]]            | 'P.stairs=[[0ep,0.5],[0.8dur,1.0]]'
""".replace("P.", f"{RESIZING}.")


@pytest.mark.parametrize(("words", "fix"), rows(OWN))
def test_a_share_of_the_run_before_the_cool_down_is_answered_with_what_to_type(words, fix):
    (problem,) = departures(of_length(10, words), of_length(20, words))
    assert problem.fixes == (fix,)
    mended = fix.replace("'", "")
    assert list(departures(of_length(10, mended), of_length(20, mended))) == []


def test_every_length_goes_on_from_the_next_shorter_one_of_its_own_trunk():
    plans = {
        f"{epochs}/{words}": of_length(epochs, f"{words} {more}")
        for words in ("seed=1", "seed=2")
        for epochs, more in ((40, ""), (10, ""), (20, "schedule.cooldown=0.5dur"))
    }
    plans |= {
        "dur": of_length(30, "seed=1 methods.ema.half_life=0.1dur"),
        "cosine": planned(small("max_duration=10ep")),
        "lr": of_length(20, "seed=1 optimizer.lr=0.2"),
    }
    pairs = {("20", "10"), ("40", "20")}
    assert chains(plans) == {
        f"{longer}/{words}": f"{shorter}/{words}"
        for words in ("seed=1", "seed=2")
        for longer, shorter in pairs
    }


def test_cool_downs_from_one_step_share_its_trunk():
    plans = {shape: of_length(10, f"schedule.shape={shape}") for shape in ("linear", "sqrt")}
    assert chains(plans) == {"sqrt": "linear"}

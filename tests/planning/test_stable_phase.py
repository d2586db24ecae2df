"""The stable phase ends where the cooldown starts; runs of all durations share it."""

import pytest

from resnet_recipes.planning.stable_phase import find_chains, find_phase_problems
from tests.planning.small_plans import make_small_recipe, plan_small
from tests.shared.tables import parse_rows

WSD = "schedule.name=wsd schedule.warmup=2ep"
RESIZING = "methods.progressive_resizing"


def plan_epochs(epochs: int, arguments: str):
    """Return the plan of a run with 10 steps per epoch."""
    return plan_small(make_small_recipe(f"{WSD} max_duration={epochs}ep {arguments}"))


def test_stable_phase_ends_with_a_counted_checkpoint():
    plan = plan_epochs(10, "schedule.cooldown=0.33dur checkpoint.interval=50ba")
    assert (plan.stable_steps, plan.total_steps) == (67, 100)
    assert [step for step in range(1, 101) if plan.saves_at(step)] == [50, 67, 100]
    cosine = plan_small(make_small_recipe("checkpoint.interval=50ba"))
    assert (cosine.stable_steps, cosine.disk.checkpoints) == (0, 2)
    assert plan.disk.checkpoints == 3


SHARED = """
methods.ema.half_life=40ba methods.ema.update_interval=1ep
methods.sam.interval=5 methods.mixup.alpha=0.3 methods.stochastic_depth={}
methods.progressive_resizing.delay=0.8dur methods.progressive_resizing.finetune=0.1dur
methods.progressive_resizing.stairs=[[0ep,0.5],[2ep,0.75],[0.9dur,1.0]]
schedule.cooldown=20ba
"""


@pytest.mark.parametrize("arguments", SHARED.strip().splitlines())
def test_find_phase_problems_allows_settings_independent_of_duration(arguments):
    assert list(find_phase_problems(plan_epochs(10, arguments), plan_epochs(20, arguments))) == []


DEPENDENT = """
schedule.warmup=0.1dur                       | schedule.warmup=10ba
methods.ema.half_life=0.05dur                | methods.ema.half_life=5ba
P.delay=0.5dur                               | P.delay=0.8dur P.finetune=0.1dur
P.stairs=[[0ep,0.5],[0.3dur,1.0]]            | 'P.stairs=[[0ep,0.5],[0.8dur,1.0]]'
""".replace("P.", f"{RESIZING}.")


@pytest.mark.parametrize(("arguments", "fix"), parse_rows(DEPENDENT))
def test_find_phase_problems_suggests_a_setting_that_works(arguments, fix):
    (problem,) = find_phase_problems(plan_epochs(10, arguments), plan_epochs(20, arguments))
    assert problem.corrections == (fix,)
    fixed = fix.replace("'", "")
    assert list(find_phase_problems(plan_epochs(10, fixed), plan_epochs(20, fixed))) == []


def test_find_phase_problems_compares_sizes_of_incomplete_epoch():
    """The stable phase ends within the ninth epoch, which has another size in the longer run."""
    arguments = f"schedule.cooldown=15ba {RESIZING}.stairs=[[0ep,0.5],[0.8dur,1.0]]"
    (problem,) = find_phase_problems(plan_epochs(10, arguments), plan_epochs(20, arguments))
    assert problem.key == RESIZING


def test_find_chains_links_each_duration_to_the_shorter():
    plans = {
        f"{epochs}/{arguments}": plan_epochs(epochs, f"{arguments} {more}")
        for arguments in ("seed=1", "seed=2")
        for epochs, more in ((40, ""), (10, ""), (20, "schedule.cooldown=0.5dur"))
    }
    plans |= {
        "dur": plan_epochs(30, "seed=1 methods.ema.half_life=0.1dur"),
        "cosine": plan_small(make_small_recipe("max_duration=10ep")),
        "lr": plan_epochs(20, "seed=1 optimizer.lr=0.2"),
    }
    pairs = {("20", "10"), ("40", "20")}
    assert find_chains(plans) == {
        f"{longer}/{arguments}": f"{shorter}/{arguments}"
        for arguments in ("seed=1", "seed=2")
        for longer, shorter in pairs
    }


def test_find_chains_links_cooldowns_from_one_step():
    plans = {shape: plan_epochs(10, f"schedule.shape={shape}") for shape in ("linear", "sqrt")}
    assert find_chains(plans) == {"sqrt": "linear"}

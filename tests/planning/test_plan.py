"""The steps, sizes and learning rates of a plan, and the plans that are rejected."""

import json
from dataclasses import replace

import pytest
import torch
import torchvision

from resnet_recipes import backbones
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.model_config import NETWORKS, ModelConfig
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.trivial_augment import TrivialAugment
from resnet_recipes.planning import network_facts
from resnet_recipes.planning.layers import count_flops
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import FINETUNE_SIZE, make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from tests.planning.small_plans import make_facts, make_small_recipe, plan_small
from tests.shared.checks import get_error, get_problem
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows, parse_values


def list_plan_problems(recipe: Recipe, ranks: int = 1, **facts_changes) -> dict[str, str]:
    facts = make_facts(**{"examples": 1000, "classes": 10} | facts_changes)
    problems = get_error(RecipeError, make_plan, recipe, facts, ranks).problems
    return {problem.key: str(problem) for problem in problems}


def test_make_plan_rejects_beton_order_for_image_files():
    recipe = make_small_recipe("data.order=quasi_random")
    assert "works only with .beton files" in list_plan_problems(recipe)["data.order"]
    make_plan(recipe, make_facts(1000, 10, "ffcv"), 1)


def test_batch_memory_of_synthetic_images_is_zero():
    assert [
        make_plan(make_small_recipe(), make_facts(1000, 10, backend), 1).batch_memory > 0
        for backend in ("torchvision", "ffcv", "synthetic")
    ] == [True, True, False]


def find_size_starts(plan: Plan) -> str:
    """Return the epochs, counted from 0, where a new size starts: "0:88 15:92"."""
    return " ".join(
        f"{epoch}:{size}"
        for epoch, size in enumerate(plan.image_sizes)
        if epoch == 0 or plan.image_sizes[epoch - 1] != size
    )


def test_mild_on_imagenet_is_the_published_run():
    plan = plan_imagenet("mild")
    assert (plan.total_steps, plan.steps_per_epoch, plan.epochs) == (22500, 625, 36)
    assert plan.warmup == 5000
    assert (plan.num_classes, plan.network.parameters) == (1000, 25_557_032)
    assert [plan.lr_at(step) for step in (0, 15, 5000, 13750)] == pytest.approx(
        [0, 0.006144, 2.048, 1.024]
    )
    assert [plan.image_size_at(step) for step in (20 * 625 - 1, 20 * 625)] == [116, 124]


def test_scale_ratio_stretches_the_run_without_warmup():
    plan = plan_imagenet("mild ssr=0.7")
    assert (plan.epochs, plan.warmup, plan.total_steps) == (63, 5000, 625 * 63)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    parse_rows(
        """
mild epochs=16 | 0:88 7:96 8:112 9:124 10:136 11:152 12:164 13:176
mild | 0:88 15:92 16:96 17:104 18:112 19:116 20:124 21:128 22:136 23:140 24:148 25:152 26:160 \
27:164 28:172 29:176
mild epochs=90 | 0:88 37:92 39:96 41:100 42:104 44:108 45:112 47:116 49:120 50:124 52:128 54:132 \
55:136 57:140 59:144 60:148 62:152 64:156 65:160 67:164 68:168 70:172 72:176
hot | 0:100 59:104 69:108 78:112 88:116 98:120 107:124 117:128 127:132 136:136 146:140 156:144 \
166:148 175:152 185:156 195:160 204:164 214:167
"""
    ),
)
def test_image_sizes_grow_as_in_published_runs(arguments, expected):
    assert find_size_starts(plan_imagenet(arguments)) == expected


def test_loader_sizes_are_sizes_before_colout():
    assert plan_imagenet("hot").loader_sizes == ()
    plan = plan_imagenet("hot methods.progressive_resizing.at=loader")
    assert (plan.loader_sizes[0], plan.loader_sizes[-1]) == (104, 176)  # before ColOut
    assert (plan.image_sizes[0], plan.image_sizes[-1]) == (
        98,
        167,
    )  # floor(0.95 * 104), floor(0.95 * 176)


@pytest.mark.parametrize(
    ("ranks", "parts"),
    parse_values("""
1 | [2048, 256, 8]
2 | [1024, 256, 4]
8 | [256, 256, 1]
16 | [128, 128, 1]
"""),
)
def test_global_batch_is_equal_on_any_device_count(ranks, parts):
    plan = plan_imagenet("mild", ranks=ranks)
    assert [plan.rank_size, plan.micro_batch_size, plan.micro_batches] == parts
    assert plan.total_steps == 22500


def test_plan_in_batches_may_end_within_an_epoch():
    plan = plan_small(make_small_recipe("max_duration=25ba"))
    assert (plan.total_steps, float(plan.epochs), len(plan.image_sizes)) == (25, 2.5, 3)
    assert plan.image_size_at(24) == plan.image_sizes[2]


def test_steps_per_epoch_drops_the_incomplete_batch():
    assert plan_small(make_small_recipe(), examples=1099).steps_per_epoch == 10


def test_plan_logs_evaluates_and_saves_at_end():
    plan = plan_small(
        make_small_recipe(
            "max_duration=25ba log.interval=4ba evaluation.interval=1ep checkpoint.interval=0.5dur"
        )
    )
    steps = range(1, 26)
    assert [done for done in steps if plan.logs_at(done)] == [4, 8, 10, 12, 16, 20, 24, 25]
    assert [done for done in steps if plan.evaluates_at(done)] == [10, 20, 25]
    assert [done for done in steps if plan.saves_at(done)] == [13, 25]


@pytest.mark.parametrize(
    ("steps", "interval"),
    parse_values("""
10 | 1
11 | 2
15 | 2
45 | 5
400 | 40
"""),
)
def test_tenth_of_run_recurs_at_most_ten_times(steps, interval):
    settings = "evaluation.interval=0.1dur checkpoint.interval=0.1dur schedule.warmup=0ep"
    plan = plan_small(make_small_recipe(f"max_duration={steps}ba {settings}"))
    expected = sorted({*range(interval, steps, interval), steps})
    assert [done for done in range(1, steps + 1) if plan.evaluates_at(done)] == expected
    assert [done for done in range(1, steps + 1) if plan.saves_at(done)] == expected


@pytest.mark.parametrize(
    ("schedule", "steps", "rates"),
    parse_values(
        """
name=constant schedule.warmup=0ep | [0, 99] | [0.1, 0.1]
name=linear | [10, 55] | [0.1, 0.05]
name=polynomial schedule.power=2.0 | [10, 55] | [0.1, 0.025]
name=wsd schedule.cooldown=0.4dur | [10, 55, 80] | [0.1, 0.1, 0.05]
name=multistep schedule.milestones=[3ep,60ba] | [29, 30, 60] | [0.1, 0.01, 0.001]
name=cosine schedule.interval=epoch | [0, 9, 10, 19] | [0.1, 0.1, 0.1, 0.1]
"""
    ),
)
def test_lr_at_follows_each_schedule(schedule, steps, rates):
    plan = plan_small(make_small_recipe(f"schedule.{schedule}"))
    assert [plan.lr_at(step) for step in steps] == pytest.approx(rates)


def test_milestones_stretch_with_the_run():
    steps = "schedule.name=multistep schedule.milestones=[2ep,0.75dur]"
    plan = plan_small(make_small_recipe(f"max_duration=4ep scale_schedule_ratio=2.5 {steps}"))
    assert [plan.lr_at(step) for step in (49, 50, 74, 75)] == pytest.approx(
        [0.1, 0.01, 0.01, 0.001]
    )


def test_planned_parameters_match_torchvision_models():
    for name in NETWORKS:
        with torch.device("meta"):
            model = torchvision.models.get_model(name, num_classes=10)
        assert (
            sum(map(torch.numel, model.parameters()))
            == plan_small(make_small_recipe(f"model.name={name}")).network.parameters
        )


def test_make_plan_reports_all_conflicts_at_once():
    recipe = make_small_recipe("model.num_classes=7 batch.bn_size=30 schedule.warmup=20ep")
    problems = list_plan_problems(recipe, ranks=2)
    assert problems.keys() == {"model.num_classes", "batch.bn_size", "schedule.warmup"}
    assert "does not match the 10 classes" in problems["model.num_classes"]
    assert "batch.bn_size=25" in problems["batch.bn_size"]
    assert "it takes 200 steps, and the run has 100" in problems["schedule.warmup"]


def test_make_plan_reports_unknown_network_and_other_conflicts():
    problems = list_plan_problems(
        make_small_recipe("model.name=torchvision:resnet19 batch.bn_size=30"), ranks=2
    )
    assert problems.keys() == {"model.name", "batch.bn_size"}


@pytest.mark.parametrize(
    ("arguments", "ranks", "facts_changes", "key", "expected"),
    parse_values(
        """
 | 3 | {} | batch.global_size | =100 in the recipe must be divisible by 3, the number of devices
 | 3 | {} | batch.global_size | bs=99 lr=0.099
batch.bn_size=32 batch.global_size=200 | 3 | {} | batch.global_size | bs=192 lr=0.096
 | 1 | {examples: 99} | batch.global_size | more than the 99 training images
batch.bn_size=auto launch.device=cpu | 1 | {} | batch.bn_size | needs a GPU
max_duration=0.04ep | 1 | {} | max_duration | is less than one step
max_duration=0.04ep | 1 | {} | max_duration | epochs=2
max_duration=1ep | 1 | {} | schedule.warmup | must be shorter than the run
 | 1 | {classes: 1} | data.root | has 1 class
schedule.name=wsd schedule.cooldown=0.95dur | 1 | {} | schedule.cooldown | warm-up take 105 of
schedule.name=wsd schedule.warmup=1dur | 1 | {} | schedule.warmup | must be shorter than the run
max_duration=1ba schedule.warmup=0.1dur | 1 | {} | schedule.warmup | takes 1 step, and the run
schedule.name=multistep schedule.milestones=[5ep,3ep] | 1 | {} | schedule.milestones | must increase
"""
    ),
)
def test_make_plan_rejects_an_impossible_plan(arguments, ranks, facts_changes, key, expected):
    problems = list_plan_problems(make_small_recipe(arguments or ""), ranks, **facts_changes)
    assert [*problems] == [key]
    assert expected in problems[key]


def test_make_plan_rejects_methods_that_conflict():
    error = get_error(RecipeError, plan_imagenet, "medium methods.cutmix={}")
    assert any(
        problem.key.startswith("methods.") and "cannot be combined" in problem.clause
        for problem in error.problems
    )


@pytest.mark.parametrize("backend", ["torchvision", "ffcv"])
def test_plan_of_synthetic_images_skips_image_augmentation(backend):
    recipe = make_small_recipe()
    recipe.methods.trivial_augment = TrivialAugment()
    synthetic, photographs = (plan_small(recipe, backend=name) for name in ("synthetic", backend))
    assert "augment_image" not in synthetic.hooks
    assert synthetic.notes[0].text.startswith("trivial_augment is skipped: synthetic")
    assert photographs.hooks["augment_image"] == ["trivial_augment"]
    assert photographs.notes == synthetic.notes[1:]


@pytest.mark.parametrize(
    ("arguments", "belongs_to"),
    parse_rows(
        """
 |
ssr=2 seed=7 data=/images gpus=8 run=a data.workers=3 |
bs=1024 gpus=8 | unchanged mild
optimizer=lamb | unchanged mild
~methods.blurpool | unchanged mild
data.crop_scale=[0.35,1] | unchanged mild
"""
    ),
)
def test_published_results_belong_to_the_unchanged_recipe(arguments, belongs_to):
    composed = compose("mild", arguments.split(), needs_data=False)
    plan = make_plan(composed.recipe, make_facts(), 8, composed.origin)
    assert plan.published_recipe == belongs_to


def test_published_results_need_imagenet():
    assert plan_imagenet("mild").published
    recipe = compose("mild", ["lr=0.1", "bs=100", "batch.bn_size=100"], needs_data=False).recipe
    assert plan_small(recipe, examples=5000).published == []


def test_plan_as_dict_is_valid_json():
    values = plan_imagenet("hot").as_dict()
    assert json.loads(json.dumps(values))["total_steps"] == 168_750
    assert values["sizes"] == list(plan_imagenet("hot").image_sizes)


@pytest.mark.parametrize(
    ("changes", "ranks"), parse_values("'' | 1\n'' | 8\nepochs=1 | 8\nepochs=5 | 3")
)
@pytest.mark.parametrize("examples", [8, 100, 2047])
def test_fix_for_a_small_dataset_leaves_no_problem(examples, ranks, changes):
    """All problems caused by a batch that is too large have one fix.

    With the fix, no problem remains.
    """

    def plan_mild(arguments: str) -> Plan:
        recipe = compose("mild", arguments.split(), needs_data=False).recipe
        return make_plan(recipe, make_facts(examples, classes=4), ranks)

    problem = get_problem(RecipeError, plan_mild, changes)
    assert "images in /data, so an epoch has no steps" in problem.clause
    fixed = plan_mild(f"{changes} {problem.corrections[0]}")
    per_image = fixed.recipe.optimizer.lr / fixed.recipe.batch.global_size
    assert per_image == pytest.approx(0.001, rel=0.01)
    assert fixed.warmup < fixed.total_steps


@pytest.mark.parametrize(
    ("recipe", "changes", "examples", "has_hint"),
    parse_values("""
mild | [] | 16 | true
mild | [] | 15 | false
mild | [bs=64] | 16 | false
mild | [run.extends=first] | 16 | false
mild | [model.weights=torchvision] | 16 | false
finetune | [] | 15 | false
"""),
)
def test_small_dataset_suggests_finetune_if_it_fits(recipe, changes, examples, has_hint):
    composed = compose(recipe, changes, needs_data=False)
    facts = make_facts(examples, classes=4)
    problem = get_problem(RecipeError, make_plan, composed.recipe, facts, 1, composed.origin)
    assert ("recipe=finetune needs fewer images" in problem.advice) == has_hint


def test_finetune_size_is_the_batch_of_the_recipe():
    recipe = compose("finetune", needs_data=False).recipe
    assert recipe.batch.global_size == FINETUNE_SIZE


@pytest.mark.parametrize(
    "changes", [["epochs=100000000"], ["max_duration=900000000ba", "ssr=1"], ["ssr=1000"]]
)
def test_make_plan_rejects_an_endless_run(changes):
    with pytest.raises(RecipeError, match="the maximum is 1,000,000,000 steps and 10,000 epochs"):
        make_plan(compose("mild", changes, needs_data=False).recipe, make_facts(4000, classes=4), 1)


def test_flops_count_all_sizes_and_sam():
    plan = plan_imagenet("mild methods.sam.interval=4")
    steps = plan.total_steps + plan.total_steps // 4
    assert len(plan.flops) == len(plan.image_sizes)
    assert min(plan.flops) < max(plan.flops) / 3.5  # 88 and 176 pixels
    full = plan_imagenet("mild methods.sam.interval=4 ~methods.progressive_resizing").flops
    once = count_flops(ModelConfig(), 1000, 176, BlurPool()).training
    assert sum(full) == steps * 2048 * once
    assert plan.as_dict()["training_pflops"] == sum(plan.flops) / 1e15


def test_evaluation_offset_sets_the_first_evaluation():
    plan = make_plan(
        make_small_recipe("evaluation.interval=4ep evaluation.offset=3ep"), make_facts(1000), 1
    )
    evaluated = [done for done in range(1, 101) if plan.evaluates_at(done)]
    assert evaluated == [30, 70, 100]


#: Evaluations and checkpoints: an offset, one above the duration, and the stable phase, whose
#: checkpoint may also be due at the interval.
COUNTS = """
evaluation.offset=0ep                                              | 3 | 3
evaluation.offset=3ep                                              | 3 | 3
evaluation.interval=20ep evaluation.offset=12ep                    | 1 | 3
schedule.name=wsd schedule.cooldown=33ba checkpoint.interval=40ba  | 3 | 4
schedule.name=wsd schedule.cooldown=20ba checkpoint.interval=40ba  | 3 | 3
schedule.name=wsd schedule.cooldown=90ba checkpoint.interval=40ba  | 3 | 4
"""


@pytest.mark.parametrize(("settings", "evaluations", "saves"), parse_rows(COUNTS))
def test_plan_counts_evaluations_and_checkpoints(settings, evaluations, saves):
    intervals = "evaluation.interval=4ep checkpoint.interval=4ep"
    plan = make_plan(make_small_recipe(f"{intervals} {settings}"), make_facts(1000), 1)
    assert plan.evaluated_images == int(evaluations) * plan.facts.eval_examples
    assert plan.saves == int(saves)
    steps = range(1, plan.total_steps + 1)
    assert sum(map(plan.evaluates_at, steps)) == int(evaluations)
    assert sum(map(plan.saves_at, steps)) == int(saves)


def test_finetune_trains_on_more_images_than_it_evaluates():
    """The example of the README: 5 epochs of 245 photographs, and 153 to evaluate."""
    facts = replace(make_facts(245, 2), eval_examples=153)
    plan = make_plan(plan_imagenet("finetune epochs=5", 1).recipe, facts, 1)
    assert plan.evaluated_images == 5 * 153 < sum(plan.epoch_images)


def test_make_plan_shares_networks_only_if_equal(monkeypatch):
    built, structure = [], backbones.build_structure
    monkeypatch.setattr(
        backbones, "build_structure", lambda *args: built.append(args) or structure(*args)
    )
    monkeypatch.setattr(network_facts, "_FACTS", {})
    base = "model.name=resnet18 model.stem=small data.train_size=32 data.eval_size=32"
    arguments = ["seed=1", "seed=2", "model.width=0.5", "methods.blurpool={}"]
    plans = [
        make_plan(make_small_recipe(f"{base} {word}"), make_facts(1000, 10), 1)
        for word in arguments
    ]
    plans.append(make_plan(make_small_recipe(f"{base} seed=1"), make_facts(1000, 9), 1))
    assert len(built) == 2 * 4  # the library network and the changed network
    assert plans[0].network is plans[1].network
    flops = [plan.network.count_flops(32).training for plan in plans]
    assert len({*flops}) == 4
    assert plans[4].network.parameters < plans[0].network.parameters

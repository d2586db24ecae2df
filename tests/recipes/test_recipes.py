"""Packaged recipes against their sources: every value, with its publication."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from resnet_recipes.data.base import DataFacts
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.frozen_recipe import to_tree
from resnet_recipes.recipe.library import GROUPS, find_packaged_folder
from resnet_recipes.recipe.schema import get_enabled
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows

NAMES = ("mild", "medium", "hot")
ALL = sorted(path.stem for path in find_packaged_folder().glob("*.yaml"))

#: YAMLS: mosaicml/benchmarks, blogs/resnet/recipes/resnet50_{mild,medium,hot}.yaml. COMPOSER:
#: mosaicml/composer 0.7.1, default. EXAMPLES: mosaicml/examples, resnet_imagenet. BLOG: MosaicML,
#: Mosaic ResNet deep dive.


#: setting -> mild, medium, hot (or one value for all), source. null means that the method is off.
TABLE = {
    key: [*map(yaml.safe_load, values * (3 // len(values))), source]
    for key, *values, source in parse_rows(
        """
max_duration | 90ep | YAMLS
scale_schedule_ratio | 0.4 | 1.5 | 3.0 | EXAMPLES (36, 135 and 270 epochs)
seed | 42 | YAMLS
model.name | resnet50 | YAMLS
model.init | kaiming_normal | YAMLS
model.bn_init | uniform | YAMLS
data.train_size | 176 | YAMLS
data.eval_resize | 232 | YAMLS
data.eval_size | 224 | YAMLS
data.crop_scale | [0.08, 1.0] | COMPOSER
data.crop_ratio | [0.75, 1.3333333333333333] | COMPOSER
batch.global_size | 2048 | YAMLS
batch.bn_size | 256 | YAMLS (2048 on 8 GPUs)
optimizer.name | decoupled_sgdw | YAMLS
optimizer.lr | 2.048 | YAMLS
optimizer.momentum | 0.875 | YAMLS
optimizer.weight_decay | 0.0005 | 0.0005 | 0.0003 | YAMLS
schedule.name | cosine | YAMLS
schedule.warmup | 8ep | YAMLS
schedule.final | 0.0 | YAMLS
schedule.interval | step | MosaicML, best practices post
precision.channels_last | true | YAMLS
evaluation.interval | 1ep | YAMLS
methods.bce_loss | {} | BLOG
methods.blurpool.min_channels | 16 | YAMLS
methods.blurpool.blur_first | true | YAMLS
methods.blurpool.replace_convs | true | YAMLS
methods.blurpool.replace_maxpools | true | YAMLS
methods.progressive_resizing.mode | resize | YAMLS
methods.progressive_resizing.initial_scale | 0.5 | 0.5 | 0.6 | YAMLS
methods.progressive_resizing.delay | 0.4dur | 0.4dur | 0.2dur | YAMLS
methods.progressive_resizing.finetune | 0.2dur | YAMLS
methods.progressive_resizing.size_increment | 4 | YAMLS
methods.progressive_resizing.interpolation | nearest | mosaicml/composer 0.7.1, source
methods.label_smoothing.smoothing | 0.08 | 0.1 | 0.13 | YAMLS
methods.ema.half_life | 100ba | YAMLS
methods.ema.update_interval | 20ba | YAMLS
methods.mixup.alpha | null | 0.2 | 0.25 | YAMLS
methods.sam.rho | null | 0.5 | 0.5 | YAMLS
methods.sam.interval | null | 10 | 5 | YAMLS
methods.colout.p_row | null | null | 0.05 | YAMLS
methods.colout.p_col | null | null | 0.05 | YAMLS
methods.randaugment.depth | null | null | 1 | YAMLS
methods.randaugment.severity | null | null | 10 | YAMLS; 9 in EXAMPLES
methods.randaugment.augmentation_set | null | null | all | YAMLS
methods.stochastic_depth.drop_rate | null | null | 0.1 | YAMLS
methods.stochastic_depth.distribution | null | null | linear | YAMLS
"""
    )
}

#: Settings without a published value: they belong to this program, or describe a recipe.
OWN = {"name", "about", "published", "model.num_classes", "precision.dtype"}


def flatten_settings(tree: dict, prefix: str = "") -> dict:
    """Return the settings in a recipe file, by full name."""
    settings = {}
    for key, value in tree.items():
        settings |= (
            flatten_settings(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{key}": value}
        )
    return settings


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_equals_its_published_value(name):
    column = NAMES.index(name)
    expected = {key: row[column] for key, row in TABLE.items() if row[column] is not None}
    settings = flatten_settings(strict_yaml.load(find_packaged_folder() / f"{name}.yaml").tree)
    assert {key: value for key, value in settings.items() if key not in OWN} == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_method_setting_has_a_source(name):
    """A recipe writes every value of a method, except for details of the implementation."""
    omitted = {
        "methods.progressive_resizing.at",
        "methods.progressive_resizing.stairs",
        "methods.progressive_resizing.size_from_epoch",
        "methods.ema.delay",
        "methods.ema.each_epoch",
        *(f"methods.bce_loss.{key}" for key in ("reduction", "threshold", "bias_init")),
    }
    recipe = compose(name, needs_data=False).recipe
    for method, values in get_enabled(recipe.methods).items():
        for key in asdict(values):
            full = f"methods.{method}.{key}"
            assert full in TABLE or full in omitted, full


@pytest.mark.parametrize("path", sorted(find_packaged_folder().rglob("*.yaml")), ids=str)
def test_recipe_lines_have_source_and_fit_page(path):
    """An option of a group fits on a card, and starts with its name."""
    lines = path.read_text().splitlines()
    group = path.parent.name
    prose = ("name:", "about:", "baseline:", "published:", "   hardware:", "#")
    for line in lines:
        is_value = ":" in line and not line.lstrip().startswith(("#", "- ")) and line[-1] != ":"
        assert not is_value or line.startswith(prose) or "  # " in line, line
    assert len(lines) <= (15 if group in GROUPS else 100)
    assert max(map(len, lines)) <= 120
    assert group not in GROUPS or lines[0].startswith(f"# {group}={path.stem}: ")


@pytest.mark.parametrize(
    "name",
    sorted({*ALL} - {"demo", "finetune", "gentle", "nvidia_mlperf_pt", "small"}),
)
def test_published_results_have_source_and_header(name):
    recipe = compose(name, needs_data=False).recipe
    header = (find_packaged_folder() / f"{name}.yaml").read_text().split("\n\n")[0]
    assert recipe.published
    assert all(result.source and 70 < result.top1 < 85 for result in recipe.published)
    assert f"{recipe.published[0].top1:g}" in header


@pytest.mark.parametrize("images", [100, 245, 9469])
def test_finetune_steps_are_independent_of_images(images):
    """As in docs/lab/finetuning_choice.md: AdamW, warm-up, cosine, a frozen backbone, no epochs."""
    photos = DataFacts("torchvision", Path("photos"), images, 100, ("ants", "bees"))
    plan = make_plan(compose("finetune", needs_data=False).recipe, photos, 1)
    assert (plan.total_steps, plan.recipe.batch.global_size) == (400, 16)
    assert [plan.lr_at(step) for step in (0, 40, 220)] == pytest.approx([0, 1e-2, 5e-3], abs=1e-5)
    assert plan.recipe.optimizer.name == "adamw"
    assert (plan.recipe.model.weights, plan.recipe.model.freeze) == ("torchvision", "backbone")
    assert not plan.notes


def test_demo_uses_methods_and_optimizer_of_mild():
    mild, demo = (to_tree(compose(name, needs_data=False).recipe) for name in ("mild", "demo"))
    assert mild["methods"].keys() == demo["methods"].keys()
    assert mild["methods"]["label_smoothing"] == demo["methods"]["label_smoothing"]
    assert demo["optimizer"]["name"] == mild["optimizer"]["name"]
    assert demo["data"]["train_size"] <= 64
    assert demo["published"] == []


def test_gentle_is_mild_with_larger_crops():
    mild, gentle = (compose(name, needs_data=False).recipe for name in ("mild", "gentle"))
    crops = replace(mild.data, crop_scale=(0.35, 1.0))
    assert gentle == replace(mild, name="gentle", about=gentle.about, data=crops, published=[])


def test_pytorch_v2_average_matches_torchvision():
    """Every 32 steps torchvision averages with (1 - 0.99998) * batch * 32 / epochs."""
    plan = plan_imagenet("pytorch_v2")
    half_life = plan.steps(plan.recipe.methods.ema.half_life)
    assert 1 - 2 ** (-32 / half_life) == pytest.approx(2e-5 * 1024 * 32 / 600, rel=1e-3)


def test_packaged_recipes_equal_repository_recipes():
    repository = Path(__file__).parents[2] / "recipes"
    assert {path.name for path in find_packaged_folder().glob("*.yaml")} == {
        path.name for path in repository.glob("*.yaml")
    }


@pytest.mark.parametrize("name", ALL)
def test_hook_table_of_recipe_equals_golden_file(name):
    table = "".join(
        f"{hook:<16} {', '.join(methods)}\n"
        for hook, methods in plan_imagenet(name).as_dict()["hooks"].items()
    )
    assert table == (Path(__file__).parent / f"golden/{name}.txt").read_text()

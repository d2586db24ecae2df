"""The tables of foreign names suggest accepted arguments; misspelled names are recognized."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from resnet_recipes.base import suggestions
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.suggestions import (
    FLAGS,
    FOREIGN_COMMANDS,
    FOREIGN_NAMES,
    FOREIGN_VALUES,
    IMAGE_FLAGS,
    RUN_FLAGS,
    TRAINED_TRANSLATIONS,
    TRANSLATIONS,
    find_closest,
    find_misspelled,
    find_part,
    translate,
)
from resnet_recipes.command_line.arguments import parse_arguments
from resnet_recipes.commands import COMMANDS, get_usage
from resnet_recipes.inference.formats import FORMATS
from resnet_recipes.inference.open import SETTINGS, apply_changes
from resnet_recipes.recipe.build import get_setting_types
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import GROUPS
from resnet_recipes.recipe.schema import Recipe
from tests.shared.checks import get_error, get_problem
from tests.shared.tables import parse_rows

#: Values for options that do not accept every number.
EXAMPLE_VALUES = dict(
    parse_rows(
        """
data | /data/imagenet
data.root | /data/imagenet
data.train_size | 128
data.eval_size | 224
data.eval_resize | 256
launch.device | cpu
model.name | resnet18
model.weights | weights.pt
optimizer | lamb
schedule | step
precision.dtype | bf16
recipe | mild
run | mine
run.root | runs
data.backend | auto
data.crop_ratio | 0.75,1.33
data.crop_scale | 0.1,1
data.interpolation | bicubic
data.eval_interpolation | bicubic
depth | 18
model_depth | 18
data.share | 0.1
data.val_share | 0.1
batch.eval_size | 4
log.to | csv
model.in_channels | 1
optimizer.betas | 0.9,0.95
optimizer.eps | 1e-6
optimizer.momentum | 0.5
optimizer.backbone_rate | 0.1
schedule.milestones | 30ep,60ep
schedule.gamma | 0.5
schedule.start | 0.1
schedule.final | 0.1
schedule.warmup | 1ep
checkpoint.keep | 3
--resume | runs/mine
--recipes | recipes
"""
    )
)


def make_value(name: str) -> str:
    """Return a plausible value for an option of another program."""
    template = TRANSLATIONS[name].text
    takes_value = TRANSLATIONS[name].takes_value
    ours = next((word for word in template.split() if "{}" in word), template).split("=")[0]
    number = "0.1" if ours.startswith("methods.") or ours in ("lr", "wd") else "4"
    return EXAMPLE_VALUES.get(name, EXAMPLE_VALUES.get(ours, number)) if takes_value else ""


def test_every_suggested_setting_is_accepted():
    for name in TRANSLATIONS:
        suggested = translate(name, make_value(name))
        arguments = suggested.text.rpartition(" ... ")[2].split()
        if arguments[:1] == ["resnet-recipes"]:
            parse_arguments(arguments[2:], get_usage(arguments[1]))
            continue
        parsed = parse_arguments(arguments, get_usage("train"))
        changes = [word for word in parsed.positional if not word.startswith("recipe=")]
        if not re.search("=\\[?[A-Z]|NAME", suggested.text) and "-m" not in parsed:
            compose("mild", ["methods.ema={}", *changes], needs_data=False)
        assert suggested.text or suggested.note, name


def test_flag_of_a_method_needs_no_value():
    assert translate("bce", "") == (("methods.bce_loss={}",), "")
    assert translate("mixup_alpha", "").note == "needs a value"


@pytest.mark.parametrize("verb", FOREIGN_COMMANDS)
def test_foreign_commands_suggest_ours(verb):
    ours = {line.split()[0] for line in FOREIGN_COMMANDS[verb].text.split(" | ")}
    assert ours <= {*COMMANDS, "train"}


def test_commands_without_settings_do_not_suggest_any():
    error = get_error(RecipeError, parse_arguments, ["--epochs", "3", "runs"], get_usage("report"))
    assert "epochs=3" not in str(error)


@pytest.mark.parametrize(
    ("typed", "meant"),
    parse_rows(
        """
optimiser.lr | optimizer.lr
optimizer.lrr | optimizer.lr
lr | optimizer.lr
methods.labelsmoothing.smoothing | methods.label_smoothing.smoothing
methods.mixup.alfa | methods.mixup.alpha
data.num_worker | data.workers
data.workres | data.workers
lr.mixup | methods.mixup
max_duraton | max_duration
smoothing | methods.label_smoothing.smoothing
ema.half_life | methods.ema.half_life
weight_decay | optimizer.weight_decay
methods.emma | methods.ema
rnu.root | run.root
batchsize | batch.global_size
learning_rate | optimizer.lr
epoch | max_duration
ptimizer.lr | optimizer.lr
optimizer.momntum | optimizer.momentum
metods.cutmx.alpha | methods.cutmix.alpha
schedule.wamrup | schedule.warmup
data.trian_size | data.train_size
checkpoint.keeep | checkpoint.keep
precision.dtipe | precision.dtype
launch.max_wal | launch.max_wall
evaluation.intervals | evaluation.interval
log.too | log.to
run.nam | run.name
data.roots | data.root
layer_decay |
xyzzy.weigth_decay | optimizer.weight_decay
xyzzy.plugh |
"""
    ),
)
def test_foreign_and_misspelled_names_suggest_settings(typed, meant):
    assert find_closest(typed, get_setting_types()) == meant


def test_misspelled_foreign_name_needs_four_letters():
    assert translate("ampp", "true", exactly=False) == translate("amp", "true") is not None
    assert translate("apm", "true", exactly=False) is None


def test_name_close_to_two_settings_suggests_none():
    assert find_misspelled("data.sed", ["data.seed", "data.std"]) == ""


def test_two_letter_name_inside_word_is_not_meant():
    assert find_part("tools", ["ls", "eval"]) == ""


def test_every_suggested_value_is_accepted():
    for setting, translations in FOREIGN_VALUES.items():
        for value, ours in translations.items() if "." in setting or setting in GROUPS else ():
            assert ours.text or ours.note, (setting, value)
            needed = ["model.weights=torchvision"] if setting == "model.freeze" else []
            compose("mild", [*needed, *ours.words], needs_data=False)


def test_every_suggestion_for_off_is_accepted():
    for name in FOREIGN_NAMES["off"]:
        translation = translate(name, "false")
        compose("mild", translation.words, needs_data=False)


def test_every_suggestion_for_trained_networks_is_accepted():
    for name in FOREIGN_NAMES["trained"]:
        translation = translate(name, "64", table=TRAINED_TRANSLATIONS)
        apply_changes(Recipe(), translation.words, SETTINGS["eval"])


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        *((["eval", f"--{word}", "best.pt"], "resnet-recipes eval best.pt") for word in RUN_FLAGS),
        *(
            (["predict", "--" + word, "a.jpg"], "resnet-recipes predict last a.jpg")
            for word in IMAGE_FLAGS
        ),
    ],
)
def test_flag_in_place_of_argument_suggests_the_argument(typed, arguments):
    problem = get_problem(RecipeError, parse_arguments, typed[1:], get_usage(typed[0]))
    assert problem.corrections == (arguments,)


def test_every_suggested_flag_and_format_exists():
    flags = {flag for verb in COMMANDS for flag in get_usage(verb).placeholders}
    flags |= get_usage("train").placeholders.keys()
    assert all(set(translation.text.split()) <= flags for translation in FLAGS.values())
    assert {translation.text for translation in FOREIGN_VALUES["--to"].values()} <= FORMATS.keys()


@pytest.mark.parametrize("value", ["images", "source", "input"])
def test_image_setting_keeps_values_named_like_flags(value):
    """predict has flags with these names."""
    assert translate("images", value).words == (f"data={value}",)


@pytest.mark.parametrize("table", ["foreign_names.csv", "foreign_values.csv"])
def test_table_has_each_foreign_name_once(table):
    """The later row would win, and the earlier would have no effect."""
    with Path(suggestions.__file__).with_name(table).open(newline="") as file:
        names = [(key, name) for key, words, *_ in csv.reader(file) for name in words.split()]
    assert [name for name, count in Counter(names).items() if count > 1] == []

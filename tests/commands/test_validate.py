"""All mistakes of recipe files, with lines to use instead."""

import re
from pathlib import Path

import pytest

from tests.shared.tables import parse_rows


def test_validate_reports_the_problems_of_all_files(run_command):
    Path("good.yaml").write_text("name: good\ndefaults: [mild]\n")
    for name in ("bad", "same"):
        Path(f"{name}.yaml").write_text(f"name: {name}\noptimizer:\n  lrr: 1\n")
    out, err = run_command("resnet-recipes validate nope.yaml bad.yaml good.yaml same.yaml", 2)
    assert out == "good.yaml: ok\n"
    assert err.startswith("error: 3 problems")
    assert "`nope.yaml` does not exist" in err
    assert "bad.yaml:3: unknown setting optimizer.lrr" in err
    assert "same.yaml:3: unknown setting optimizer.lrr" in err


_MISTAKES = """\
defaults: [milld, optimizer: lam]
epochs: many
lr: -1
lr: 0.1
batch: {global_size: lots}
methods: {ema: off, mixap: {}}
"""


@pytest.mark.parametrize(
    "command",
    ["recipes validate", "recipes diff mine mild", "train mine", "train ./recipes/mine.yaml"],
)
def test_mistakes_of_a_file_are_reported_at_once(command, run_command, recipes):
    (recipes / "mine.yaml").write_text(_MISTAKES)
    lines = run_command(f"resnet-{command}", 2).err.splitlines()
    expected = (
        "1: unknown optimizer lam; did you mean lamb?",
        "1: unknown recipe milld; did you mean mild?",
        "2: epochs: many must be",
        "3: optimizer.lr=-1 must be",
        "4: lr is a duplicate key",
        "5: batch.global_size=lots must be",
        "6: ema: off is read differently",
        "6: unknown setting methods.mixap; did you mean mixup: ",
    )
    first = [line.partition("mine.yaml:")[2] for line in lines if "mine.yaml:" in line]
    assert all(line.startswith(start) for line, start in zip(sorted(first), expected, strict=True))


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
defaults: mild | 1: defaults=mild must be a list | use:   defaults: [mild]
optimizer: adam | 1: optimizer=adam: optimizer is | use:   optimizer: {name: adamw}
epochs: 30 epochs | 1: epochs: 30 epochs must be | use:   epochs: 30ep
epochs: 2h | 1: epochs: 2h must be | use:   budget: 2h
epoch: 3 | 1: unknown setting epoch; did you mean epochs: 3?
batch_size: 8 | 1: unknown setting batch_size; did you mean bs: 8?
optimizer: {lrr: 1} | 1: unknown setting optimizer.lrr; did you mean lr: 1?
lr: '1,0' | 1: optimizer.lr=1,0 must be | use:   lr: 2.048
methods.ema.half_life: 1ep | 1: unknown | hint:  methods: {ema: {half_life: ...}}
model: {name: resnet51} | 1: model.name=resnet51 is not | use:   name: resnet50
launch: {budget: 2} | 1: launch.budget=2 must be a time | use:   budget: 2m
methods: {mixup: {alpha: -1}} | 1: methods.mixup.alpha=-1 | use:   alpha: 0.2
methods: {sam: {interval: 0}} | 1: methods.sam | hint:  sam: null turns it off
run: 5 | 1: run.name=5 must be text | use:   run: '5'
name: My | 1: name=My must | hint:  rename the file, or set another name in it
"""
    ),
)
def test_mistake_of_a_file_suggests_a_line(row, run_command, recipes):
    text, wrong, *advice = row
    (recipes / "mine.yaml").write_text(f"{text}\nbs: many\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert f"recipes/mine.yaml:{wrong}" in err
    assert all(f"\n      {line}\n" in err for line in advice)
    assert "mine.yaml:2: batch.global_size=many must be" in err
    assert "mine.yaml:3: seed: yes is read" in err


def test_broken_reference_is_reported_in_one_line(run_command, recipes):
    (recipes / "mine.yaml").write_text("lr: ${optimizer.wd}\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert "mine.yaml cannot be composed: Interpolation key 'optimizer.wd' not found\n" in err
    assert "mine.yaml:2: seed: yes is read" in err


def test_problems_of_a_file_are_sorted_by_line(run_command, recipes):
    lines = ("defaults: [mild]", "epoch: 3", "optimizer: {lrr: 1}", "methods: {ema: off}")
    (recipes / "mine.yaml").write_text("\n".join((*lines, *["# comment"] * 6, "batch_size: 8")))
    err = run_command("resnet-recipes validate", 2).err
    assert re.findall(r"mine.yaml:(\d+)", err) == ["2", "3", "4", "11"]


@pytest.mark.parametrize(
    "command", ["recipes validate", "recipes show x", "train x data=here", "train recipes/x.yml"]
)
def test_recipe_that_ends_in_yml_must_be_renamed(command, run_command, recipes):
    (recipes / "x.yml").write_text("defaults: [mild]\n")
    err = run_command(f"resnet-{command}", 2).err
    assert "recipes/x.yml must be renamed to x.yaml\n" in err
    assert "try:   mv -n recipes/x.yml recipes/x.yaml\n" in err


def test_unknown_parent_does_not_hide_other_mistakes(run_command, recipes):
    (recipes / "mine.yaml").write_text("defaults: [gone]\nepochs: many\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert [f"mine.yaml:{line}: " in err for line in (1, 2, 3)] == [True] * 3


def test_validate_of_a_folder_suggests_a_command(run_command):
    Path("my recipes").mkdir()
    Path("my recipes/good.yaml").write_text("name: good\ndefaults: [mild]\n")
    error = run_command("resnet-recipes validate 'my recipes'", 2).err
    command = "resnet-recipes validate --recipes 'my recipes'"
    assert f"try:   {command}\n" in error
    assert run_command(command).out == "my recipes/good.yaml: ok\n"


_DURATION = "defaults: [mild]\nmax_duration: {}\nschedule: {{warmup: {}}}\n"

_TRANSFORMER = """\
defaults: [mild]
model: {name: torchvision:vit_b_16}
data: {train_size: 224, eval_size: 224}
methods: {progressive_resizing: null}
"""


@pytest.mark.parametrize(
    ("recipe", "section", "line"),
    [
        ("defaults: [mild]\nepochs: 3\n", "", "schedule: {warmup: 0.1dur}"),
        (_DURATION.format("50000ba", "60000ba"), "schedule: {", "warmup: 0.1dur"),
        (_TRANSFORMER, "methods: {", "blurpool: null"),
    ],
)
def test_validate_suggests_lines_for_conflicts(recipe, section, line, run_command, recipes):
    (recipes / "mine.yaml").write_text(recipe)
    error = run_command("resnet-recipes validate", 2).err
    assert error.startswith("error: recipes/mine.yaml:")
    assert f"use:   {line}\n" in error
    fixed = re.sub(r"warmup: \w+", "", recipe)
    fixed = fixed.replace(section, f"{section}{line}, ") if section else recipe + line
    (recipes / "mine.yaml").write_text(fixed.replace(", }", "}"))
    assert run_command("resnet-recipes validate").out == "recipes/mine.yaml: ok\n"


@pytest.mark.parametrize(
    "recipe",
    [
        _DURATION.format("3ep", "5000ba"),  # possible with many images
        _DURATION.format("5000ba", "9ep"),  # possible with few images
        "defaults: [mild]\ndata: {order: quasi_random}\nmodel: {num_classes: 7}\n",
    ],
)
def test_validate_accepts_recipe_that_some_datasets_fit(recipe, run_subcommand, recipes):
    (recipes / "mine.yaml").write_text(recipe)
    assert run_subcommand("validate") == "recipes/mine.yaml: ok\n"


def test_validate_lists_a_folder_once(run_subcommand, recipes, monkeypatch):
    for number in range(20):
        (recipes / f"mine{number}.yaml").write_text("defaults: [small]\nseed: 1\n")
    listed, glob = [], Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, form: listed.append(path) or glob(path, form))
    assert run_subcommand("validate").count("yaml: ok") == 20
    assert listed.count(recipes.absolute()) == 1

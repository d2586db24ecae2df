"""Recipes, names and words from strangers: none runs, each is refused.

Checkpoints: tests/network/test_archive.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.jobs.group import Group, environments
from resnet_recipes.recipe.compose import compose

#: Recipe files that try to run code, to read what is not theirs, or to cost minutes. MARKER stands
#: for a file that must not appear.
RECIPES = {
    "python tag": "name: !!python/object/apply:os.system ['touch MARKER']",
    "python name tag": "name: !!python/name:os.system",
    "python module tag": "name: !!python/module:antigravity",
    "python new tag": "name: !!python/object/new:subprocess.Popen [['touch', 'MARKER']]",
    "own tag": "name: !Call {function: os.system}",
    "binary": "name: !!binary aGVsbG8=",
    "set": "methods: !!set {ema}",
    "ordered map": "methods: !!omap [ema: {}]",
    "hydra callback": "hydra: {callbacks: {evil: {_target_: os.system, command: touch MARKER}}}",
    "hydra logging": "hydra: {job_logging: {handlers: {evil: {(): os.system, command: "
    "touch MARKER}}}}",
    "hydra folder": "hydra: {run: {dir: /tmp/elsewhere}}",
    "hydra search path": "hydra: {searchpath: [file:///tmp/elsewhere]}",
    "hydra sweeper": "hydra: {sweeper: {_target_: os.system}}",
    "package instruction": "# @package _global_\nhydra: {callbacks: {evil: {_target_: os.system}}}",
    "package instruction alone": "name: x\n# @package hydra.callbacks",
    "target": "model: {_target_: os.system, command: touch MARKER}",
    "partial target": "optimizer: {_partial_: true, _target_: os.system}",
    "component": "model: {_component_: os.system}",
    "target in a method": "methods: {ema: {_target_: os.system}}",
    "dotted method": "methods: {os.system: {command: touch MARKER}}",
    "dunder key": "model: {__class__: os.system}",
    "environment": "model: {name: '${oc.env:HOME}'}",
    "environment in a list": "schedule: {milestones: ['${oc.env:HOME}']}",
    "decoded environment": "about: '${oc.decode:${oc.env:HOME}}'",
    "file reader": "about: '${oc.create:{x: 1}}'",
    "resolver": "seed: '${now:%S}'",
    "reference bomb": "about: ${name}\nname: ${about}",
    "anchors": "a: &a [1, 1]\nb: *a",
    "merge key": "base: &base {lr: 1}\noptimizer: {<<: *base}",
    "laughs": "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, "
    "*b, *b, *b, *b, "
    "*b]\nabout: *c",
    "depth": "name: " + "[" * 5000 + "]" * 5000,
    "depth in mappings": "name: " + "{a: " * 1000 + "1" + "}" * 1000,
    "size": "about: " + "x" * 100_000,
    "keys": "\n".join(f"k{i}: 1" for i in range(5000)),
    "twice": "seed: 1\nseed: 2",
    "two documents": "name: a\n---\nname: b",
    "nul": "name: a\0b",
    "not text": "name: \udcff",
    "escapes": 'run: {name: "\\e]0;owned\\a"}',
    "parent outside": "defaults: [../../../etc/passwd]",
    "absolute parent": "defaults: [/etc/passwd]",
    "hydra parent": "defaults: [hydra/launcher: evil, _self_]",
    "own parent": "defaults: [hostile]",
    "number as run name": "run: {name: ../../outside}",
    "infinite": "optimizer: {lr: .inf}",
    "not a number": "optimizer: {lr: .nan}",
    "huge number": "seed: 1" + "0" * 400,
}

#: Names of recipes.
NAMES = (
    "../hot",
    "../../etc/passwd",
    "/etc/passwd",
    "hot/../hot",
    "Hot",
    "hot.yaml/../../x.yaml",
    "hot;ls",
    "$(ls)",
    "",
    "-",
    "hot\0",
    "a" * 300,
)

#: Settings of a command, as a wrapper that passes on a stranger's text might build them.
WORDS = (
    "hydra.run.dir=/tmp/elsewhere",
    "+hydra.callbacks.evil._target_=os.system",
    "hydra.searchpath=[file:///tmp]",
    "model._target_=os.system",
    "methods.ema._target_=os.system",
    "optimizer@hydra.callbacks=sgd",
    "run.name=../../outside",
    "run.name=..",
    "run.name=a/b",
    "run.name=a;ls",
    "model.name=${oc.env:HOME}",
    "run.name=${oc.env:HOME}",
    "optimizer.lr=nan",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a separate folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(recipe: str, *words: str) -> str:
    """Return the message with which a recipe is refused."""
    with pytest.raises(RecipeError) as caught:
        compose(recipe, ["data.root=/data", *words])
    return str(caught.value)


@pytest.mark.parametrize("kind", RECIPES)
def test_a_hostile_recipe_is_refused_and_not_run(kind, here):
    marker = here / "marker"
    (here / "hostile.yaml").write_bytes(
        RECIPES[kind].replace("MARKER", str(marker)).encode(errors="surrogateescape")
    )
    assert refused("hostile.yaml")
    assert not marker.exists()


def test_the_payload_of_these_tests_does_run_when_it_is_loaded_carelessly(here):
    marker = here / "marker"
    yaml.unsafe_load(RECIPES["python tag"].replace("MARKER", str(marker)))
    assert marker.exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_refused(name, here):
    assert "recipe" in refused(name)


@pytest.mark.parametrize("word", WORDS)
def test_a_hostile_word_is_refused(word, here):
    assert refused("mild", word)
    assert list(here.iterdir()) == []


def test_ranks_import_no_module_that_was_planted_where_the_user_is(here):
    marker = here / "marker"
    plant = f"open({str(marker)!r}, 'w').close()"
    for name in ("ctypes.py", "resnet_recipes/__init__.py", "hydra_plugins/evil.py", "torch.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(plant)
    command = [sys.executable, "-m", "resnet_recipes.jobs.rank"]
    subprocess.run(command, env=environments(Group(), 0.0)[0], check=True, timeout=60)
    assert not marker.exists()
    subprocess.run(command, capture_output=True, timeout=60)
    assert marker.exists(), "the plant of this test does not grow"


def test_neither_does_the_command_as_torchrun_starts_it(here):
    marker = here / "marker"
    for name in ("hydra_plugins/evil.py", "omegaconf.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(f"open({str(marker)!r}, 'w').close()")
    command = [sys.executable, "-m", "resnet_recipes", "recipe=mild", "data=/data", "--cfg"]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert not marker.exists()

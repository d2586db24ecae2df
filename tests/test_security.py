"""Untrusted recipes, names and arguments are rejected, and none of them runs.

tests/network/test_archive.py tests checkpoints.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from resnet_recipes.jobs.ranks.group import Group, build_environments
from tests.shared.checks import get_recipe_error

#: Recipe files that try to run code, to read other files, or to take minutes. MARKER is a file that
#: must not appear; careless loading of the first recipe creates it.
RECIPES = [
    text.encode().decode("unicode_escape")
    for text in r"""
name: !!python/object/apply:os.system ['touch MARKER']
name: !!python/name:os.system
name: !!python/module:antigravity
name: !!python/object/new:subprocess.Popen [['touch', 'MARKER']]
name: !Call {function: os.system}
name: !!binary aGVsbG8=
methods: !!set {ema}
methods: !!omap [ema: {}]
hydra: {callbacks: {evil: {_target_: os.system, command: touch MARKER}}}
hydra: {job_logging: {handlers: {evil: {(): os.system, command: touch MARKER}}}}
hydra: {run: {dir: /tmp/elsewhere}}
hydra: {searchpath: [file:///tmp/elsewhere]}
hydra: {sweeper: {_target_: os.system}}
# @package _global_\nhydra: {callbacks: {evil: {_target_: os.system}}}
name: x\n# @package hydra.callbacks
model: {_target_: os.system, command: touch MARKER}
optimizer: {_partial_: true, _target_: os.system}
model: {_component_: os.system}
methods: {ema: {_target_: os.system}}
methods: {os.system: {command: touch MARKER}}
model: {__class__: os.system}
model: {name: '${oc.env:HOME}'}
schedule: {milestones: ['${oc.env:HOME}']}
about: '${oc.decode:${oc.env:HOME}}'
about: '${oc.create:{x: 1}}'
seed: '${now:%S}'
about: ${name}\nname: ${about}
a: &a [1, 1]\nb: *a
base: &base {lr: 1}\noptimizer: {<<: *base}
a: &a [x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b]\nabout: *c
seed: 1\nseed: 2
name: a\n---\nname: b
name: a\0b
name: \udcff
run: {name: "\\e]0;owned\\a"}
defaults: [../../../etc/passwd]
defaults: [/etc/passwd]
defaults: [hydra/launcher: evil, _self_]
defaults: [hostile]
run: {name: ../../outside}
optimizer: {lr: .inf}
optimizer: {lr: .nan}
""".strip().splitlines()
] + [
    "name: " + "[" * 5000 + "]" * 5000,
    "name: " + "{a: " * 1000 + "1" + "}" * 1000,
    "about: " + "x" * 100_000,
    "\n".join(f"k{i}: 1" for i in range(5000)),
    "seed: 1" + "0" * 400,
]

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

#: Arguments as a wrapper might build them from untrusted text.
ARGUMENTS = """
hydra.run.dir=/tmp/elsewhere
+hydra.callbacks.evil._target_=os.system
hydra.searchpath=[file:///tmp]
model._target_=os.system
methods.ema._target_=os.system
optimizer@hydra.callbacks=sgd
run.name=../../outside
run.name=..
run.name=a/b
run.name=a;ls
model.name=${oc.env:HOME}
run.name=${oc.env:HOME}
optimizer.lr=nan
""".strip().splitlines()


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", RECIPES, ids=lambda text: ascii(text[:60]))
def test_hostile_recipe_is_rejected_and_not_run(text, work_folder):
    marker = work_folder / "marker"
    (work_folder / "hostile.yaml").write_bytes(
        text.replace("MARKER", str(marker)).encode(errors="surrogateescape")
    )
    get_recipe_error("hostile.yaml")
    assert not marker.exists()


def test_security_marker_detects_code_that_runs(work_folder):
    marker = work_folder / "marker"
    yaml.unsafe_load(RECIPES[0].replace("MARKER", str(marker)))
    assert marker.exists()


@pytest.mark.parametrize("name", NAMES)
def test_hostile_recipe_name_is_rejected(name, work_folder):
    assert "recipe" in str(get_recipe_error(name))


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_hostile_argument_is_rejected(argument, work_folder):
    get_recipe_error("mild", argument)
    assert list(work_folder.iterdir()) == []


def test_ranks_ignore_modules_of_current_folder(work_folder):
    marker = work_folder / "marker"
    plant = f"open({str(marker)!r}, 'w').close()"
    for name in ("ctypes.py", "resnet_recipes/__init__.py", "hydra_plugins/evil.py", "torch.py"):
        (work_folder / name).parent.mkdir(exist_ok=True)
        (work_folder / name).write_text(plant)
    command = [sys.executable, "-m", "resnet_recipes.jobs.ranks.rank"]
    subprocess.run(command, env=build_environments(Group(), attempt=0)[0], check=True, timeout=60)
    assert not marker.exists()
    subprocess.run(command, capture_output=True, timeout=60)
    assert marker.exists(), "the planted modules have no effect"


def test_torchrun_command_ignores_modules_of_current_folder(work_folder):
    marker = work_folder / "marker"
    for name in ("hydra_plugins/evil.py", "omegaconf.py"):
        (work_folder / name).parent.mkdir(exist_ok=True)
        (work_folder / name).write_text(f"open({str(marker)!r}, 'w').close()")
    command = [sys.executable, "-m", "resnet_recipes", "recipe=mild", "data=/data", "--cfg"]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert not marker.exists()

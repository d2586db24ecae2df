"""Trees of recipes inherit, refer to each other and are swept as in Hydra."""

import random

import hydra
import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.hydra_compose import (
    choose_option,
    compose_tree,
    list_points,
    resolve_references,
)
from tests.shared.tables import parse_rows, parse_values

PARENT = {"seed": 1, "optimizer": {"name": "sgd", "lr": 1.0}, "methods": {"ema": {}}}
FILES = yaml.safe_load(
    """
optimizer/lamb: {name: lamb, lr: 0.5}
child: {defaults: [parent, _self_], seed: 2, optimizer: {lr: 2.0}}
chooses: {defaults: [parent, optimizer/lamb, _self_], optimizer: {lr: 0.25}}
"""
)
LAMB = choose_option("optimizer", "optimizer/lamb")


@pytest.mark.parametrize(
    ("name", "chosen", "changes", "seed", "optimizer"),
    parse_values(
        """
child | false | [] | 2 | {name: sgd, lr: 2.0}
child | false | [++seed=3, ++optimizer.lr=3, ++seed=4] | 4 | {name: sgd, lr: 3}
child | true | [] | 2 | {name: lamb, lr: 0.5}
child | true | [++optimizer.lr=4] | 2 | {name: lamb, lr: 4}
chooses | false | [] | 1 | {name: lamb, lr: 0.25}
chooses | true | [] | 1 | {name: lamb, lr: 0.5}
"""
    ),
)
def test_changes_override_choices_files_and_parents(name, chosen, changes, seed, optimizer):
    tree = compose_tree(name, FILES | {"parent": PARENT}, [LAMB] * chosen, changes)
    assert (tree["seed"], tree["optimizer"], tree["methods"]) == (seed, optimizer, {"ema": {}})


def test_references_resolve_to_changed_values():
    files = {"recipe": {"seed": "${batch.bn_size}", "batch": {"bn_size": 8}}}
    tree = compose_tree("recipe", files, changes=["++batch.bn_size=16"])
    assert tree["seed"] == 16
    tree["batch"]["bn_size"] = 4
    assert compose_tree("recipe", files)["seed"] == 8


def test_changed_mapping_keeps_its_other_settings():
    changes = ["++optimizer={lr: 3}", "++methods.ema=null", "++log.wandb.a.b=[1]"]
    for _ in range(2):
        tree = compose_tree("parent", {"parent": PARENT}, changes=changes)
        assert tree["optimizer"] == {"name": "sgd", "lr": 3}
        assert (tree["methods"], tree["max_duration"]) == ({"ema": None}, "90ep")
        assert tree["data"].pop("train_size") == 176
        assert tree["log"].pop("wandb")["a"].pop("b").pop() == 1


def test_standalone_recipe_equals_hydra_result():
    tree = PARENT | {"batch": {"bn_size": 8}, "seed": "${batch.bn_size}", "about": None}
    alone, child = (tree | {"defaults": [*above, "_self_"]} for above in ([], ["empty"]))
    by_hydra = compose_tree("child", {"empty": {}, "child": child})
    assert compose_tree("alone", {"alone": alone}) == by_hydra
    assert (by_hydra["seed"], by_hydra["methods"]) == (8, {"ema": {}})


def make_random_tree(rng: random.Random, depth: int = 3) -> dict:
    """Return a tree with few different names, so that trees of a chain contradict each other.

    Lists have separate names, because Hydra cannot merge a list with a mapping.
    """
    leaves = {"a": [None, {}, 0.1], "b": [7, "text", True], "c": [None, [], [1, {"a": 2}], [3]]}
    return {
        name: make_random_tree(rng, depth - 1)
        if depth and name != "c" and rng.random() < 0.6
        else rng.choice(leaves[name])
        for name in rng.sample("abc", 2)
    }


@pytest.mark.parametrize("above_two", [["three"], ["three", "one"]])  # "one" is inherited twice
@pytest.mark.parametrize("seed", range(12))
def test_recipes_inherit_as_hydra_composes_them(seed, above_two):
    rng = random.Random(seed)
    parents = {"one": [], "two": above_two, "three": [], "child": ["two", "one"]}
    files = {
        name: {"defaults": [*above, "_self_"], "model": {"args": make_random_tree(rng)}}
        for name, above in parents.items()
    }
    store = ConfigStore.instance()
    for name, tree in files.items():
        store.store(name, tree)
    with hydra.initialize(config_path=None, version_base="1.3"):
        theirs = OmegaConf.to_container(hydra.compose("child"))
    assert compose_tree("child", files)["model"]["args"] == theirs["model"]["args"]


@pytest.mark.parametrize(
    ("tree", "chosen"),
    parse_values(
        """
{seed: '${batch.bn_size}', batch: {bn_size: '${seed}'}} | false
{seed: '${nothing}'} | false
{defaults: [nowhere, _self_]} | false
{} | true
"""
    ),
)
def test_compose_tree_rejects_an_impossible_tree(tree, chosen):
    with pytest.raises(ValueError, match=r"\w"):
        compose_tree("recipe", {"recipe": tree}, [LAMB] * chosen)


@pytest.mark.parametrize("parent", ["parent", "nowhere"])
def test_compose_preserves_hydra_state_of_the_caller(parent):
    ConfigStore.instance().store("theirs", {"answer": 42})
    stored = dict(ConfigStore.instance().repo)
    with hydra.initialize(config_path=None, version_base="1.3"):
        before = GlobalHydra.instance().hydra
        defaults = [parent, "optimizer/lamb", "_self_"]  # an option, which Hydra composes
        try:
            compose_tree("mine", FILES | {"parent": {}, "mine": {"defaults": defaults}})
        except ValueError:
            assert parent == "nowhere"
        assert GlobalHydra.instance().hydra is before
        assert hydra.compose("theirs").answer == 42
    assert not GlobalHydra.instance().is_initialized()
    assert ConfigStore.instance().repo == stored


def test_references_of_another_application_are_resolved():
    config = OmegaConf.create({"side": 8, "recipe": {"a": "${side}", "b": "${recipe.a}"}})
    assert resolve_references(config.recipe) == {"a": 8, "b": 8}
    assert resolve_references({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="nowhere"):
        resolve_references({"a": "${nowhere}"})
    with pytest.raises(ValueError, match="a"):
        resolve_references({"a": "???"})


@pytest.mark.parametrize(
    ("arguments", "points"),
    parse_rows(
        """
recipe=mild seed=1 | recipe=mild seed=1
bs=8,16 seed=1,2 | bs=8 seed=1; bs=8 seed=2; bs=16 seed=1; bs=16 seed=2
seed=range(1,4) | seed=1; seed=2; seed=3
lr=choice(0.5,1.0) ~methods.ema | lr=0.5 ~methods.ema; lr=1.0 ~methods.ema
~methods.ema,sam | ~methods.ema; ~methods.sam
methods.mixup={},null | methods.mixup={}; methods.mixup=null
data.crop_scale=[0.1,1],[0.25,1] | data.crop_scale=[0.1,1]; data.crop_scale=[0.25,1]
epochs=curve | epochs=22.5; epochs=30; epochs=54; epochs=60; epochs=72; epochs=90
"""
    ),
)
def test_list_points_combines_arguments_with_several_values(arguments, points):
    assert list_points(arguments.split()) == [point.split() for point in points.split("; ")]


def test_list_points_keeps_spaces_in_paths():
    assert list_points(["model.name=torchvision:a,timm:b", "data=/a b,'/c, d'"]) == [
        [f"model.name={name}", f"data={place}"]
        for name in ("torchvision:a", "timm:b")
        for place in ("/a b", "/c, d")
    ]
    assert list_points(["data=/odd/path (1), a=b"]) == [["data=/odd/path (1), a=b"]]


def test_list_points_shuffles_a_short_range():
    assert sorted(list_points(["seed=shuffle(range(1,4))"])) == [["seed=1"], ["seed=2"], ["seed=3"]]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("arguments", "message"),
    parse_rows(
        """
seed=interval(1,2) | no list of values to run
lr=interval(0.1,1) | your own Hydra application takes it
recipe=glob(*) | no list of values to run
seed=range(0,1000000000) | the maximum is 1,000
seed=shuffle(range(1,99999999)) | the maximum is 1,000
seed=shuffle(range(1.0,9e9)) | the maximum is 1,000
seed=range(nan,1) | must be a range of finite numbers
lr=range(1,2,nan) | must be a range of finite numbers
lr=range(0.1,0.5,0.0) | must be a range of finite numbers
seed=range(0,100) lr=range(1,100) | would start at least 9,900 runs
"""
    ),
)
def test_list_points_rejects_an_unlistable_sweep(arguments, message):
    with pytest.raises(RecipeError, match=message) as caught:
        list_points(arguments.split())
    assert "***" not in str(caught.value)  # a URL with a fragment would be masked

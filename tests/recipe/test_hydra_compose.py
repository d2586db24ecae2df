import hydra
import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from resnet_recipes.recipe.hydra_compose import choice, composed, plain

PARENT = {"seed": 1, "optimizer": {"name": "sgd", "lr": 1.0}, "methods": {"ema": {}}}
CHILD = {"defaults": ["parent", "_self_"], "seed": 2, "optimizer": {"lr": 2.0}}
LAMB = {"name": "lamb", "lr": 0.5}
CHOOSES = {"defaults": ["parent", "optimizer/lamb", "_self_"], "optimizer": {"lr": 0.25}}


@pytest.mark.parametrize(
    ("child", "words", "seed", "optimizer"),
    [
        (CHILD, [], 2, {"name": "sgd", "lr": 2.0}),
        (CHILD, ["++seed=3", "++optimizer.lr=3", "++seed=4"], 4, {"name": "sgd", "lr": 3}),
        (CHILD, [choice("optimizer", "optimizer/lamb")], 2, {"name": "lamb", "lr": 0.5}),
        (
            CHILD,
            ["++optimizer.lr=4", choice("optimizer", "optimizer/lamb")],
            2,
            {"name": "lamb", "lr": 4},
        ),
        (CHOOSES, [], 1, {"name": "lamb", "lr": 0.25}),
        (CHOOSES, [choice("optimizer", "optimizer/lamb")], 1, {"name": "lamb", "lr": 0.5}),
    ],
)
def test_files_win_over_their_parents_choices_over_files_and_words_over_all(
    child, words, seed, optimizer
):
    files = {"parent": PARENT, "optimizer/lamb": LAMB, "child": child}
    tree = composed("child", files, words)
    assert (tree["seed"], tree["optimizer"], tree["methods"]) == (seed, optimizer, {"ema": {}})


def test_what_no_file_sets_has_its_default():
    tree = composed("parent", {"parent": PARENT}, [])
    assert (tree["data"]["train_size"], tree["max_duration"]) == (176, "90ep")


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"seed": "${batch.bn_size}", "batch": {"bn_size": "${seed}"}}, []),
        ({"seed": "${nothing}"}, []),
        ({"about": [1]}, ["++about.b=1"]),
        ({"defaults": ["nowhere", "_self_"]}, []),
        ({}, [choice("optimizer", "optimizer/nothing")]),
    ],
)
def test_what_does_not_fit_together_is_an_error(tree, words):
    with pytest.raises(ValueError, match=r"\w"):
        composed("recipe", {"recipe": tree}, words)


def test_composing_adds_only_our_own_names_to_hydras_store():
    before = set(ConfigStore.instance().repo)
    composed("parent", {"parent": PARENT}, [])
    added = set(ConfigStore.instance().repo) - before
    assert added <= {"resnet_recipes", "resnet_recipes.yaml"}


@pytest.mark.parametrize("words", [[], ["++a.b=1", "~missing"]], ids=["composed", "refused"])
def test_the_hydra_of_a_notebook_or_another_application_goes_on(words):
    ConfigStore.instance().store("theirs", {"answer": 42})
    with hydra.initialize(config_path=None, version_base="1.3"):
        before = GlobalHydra.instance().hydra
        try:
            composed("parent", {"parent": PARENT}, words)
        except ValueError:
            assert words
        assert GlobalHydra.instance().hydra is before
        assert hydra.compose("theirs").answer == 42
    assert not GlobalHydra.instance().is_initialized()


def test_references_of_another_application_are_resolved_where_they_stand():
    from omegaconf import OmegaConf

    config = OmegaConf.create({"side": 8, "recipe": {"a": "${side}", "b": "${recipe.a}"}})
    assert plain(config.recipe) == {"a": 8, "b": 8}
    assert plain({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="nowhere"):
        plain({"a": "${nowhere}"})
    with pytest.raises(ValueError, match="a"):
        plain({"a": "???"})

"""What wins is what `hydra.compose` lets win."""

import hydra
import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from resnet_recipes.recipe import hydra_compose, strict_yaml
from resnet_recipes.recipe.library import packaged_folder

MILD, HOT = (
    {
        key: value
        for key, value in strict_yaml.load(packaged_folder() / f"{name}.yaml").tree.items()
        if key != "defaults"
    }
    for name in ("mild", "hot")
)
CHILD = {
    "methods": {"ema": None},
    "batch": {"bn_size": "${batch.eval_size}", "eval_size": 128},
    "published": [],
}

WORDS = [
    "++seed=7",
    "++data.root='/x=,y'",
    "++methods.mixup={alpha:0.4}",
    "++methods.ema=null",
    "++optimizer.lr=1e-3",
    "++methods.ema.half_life='7ba'",
    "++data.crop_scale=[0.25,1]",
    "++data.crop_scale=[0.5,1]",
    "++seed=null",
    "++methods.sam={}",
    "++new.section.key=true",
]


def read(word: str) -> tuple[str, object]:
    """Return the key and the value of an override."""
    return word.partition("=")[0].lstrip("+"), hydra_compose.value_of(word)


@pytest.mark.parametrize("words", [[], WORDS, WORDS[::-1]], ids=["none", "in order", "backwards"])
@pytest.mark.parametrize(
    "trees", [[MILD], [MILD, HOT], [HOT, MILD, CHILD]], ids=["one", "two", "three"]
)
def test_files_and_words_win_as_they_do_for_hydra(trees: list[dict], words: list[str]):
    for number, tree in enumerate(trees):
        ConfigStore.instance().store(
            f"part{number}",
            {"defaults": [*([f"part{number - 1}"] * (number > 0)), "_self_"], **tree},
        )
    with hydra.initialize(config_path=None, version_base="1.3"):
        expected = OmegaConf.to_container(
            hydra.compose(f"part{len(trees) - 1}", words), resolve=True
        )
    assert hydra_compose.composed(trees, list(map(read, words))) == expected


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        ([{"a": [1]}, {"a": {"b": 1}}], []),
        ([{"a": "${b}", "b": "${a}"}], []),
        ([{"a": "${nothing}"}], []),
        ([{"a": [1]}], ["++a.b=1"]),
    ],
)
def test_what_does_not_fit_together_is_an_error(trees: list[dict], words: list[str]):
    with pytest.raises(ValueError, match=r"\w"):
        hydra_compose.composed(trees, list(map(read, words)))

"""Words of other programs: each is answered with words that are accepted here."""

import shlex

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.commands import verbs
from resnet_recipes.commands.arguments import split
from resnet_recipes.commands.verbs import usage_of
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.foreign import MEANINGS, VERBS, meaning_of
from resnet_recipes.recipe.overrides import parse
from tests.tables import rows

#: A value for the words that do not take a number.
VALUES = {
    "data": "/data/imagenet",
    "data.root": "/data/imagenet",
    "launch.device": "cpu",
    "model.name": "resnet18",
    "model.weights": "weights.pt",
    "optimizer": "lamb",
    "schedule": "step",
    "precision.dtype": "bf16",
    "recipe": "mild",
    "run": "mine",
    "run.root": "runs",
    "--resume": "runs/mine",
    "--recipes": "recipes",
}
NUMBERS = {"data.train_size": "128", "data.eval_size": "224", "data.eval_resize": "256"}


def value_for(name: str) -> str:
    """Return a value that a person would give for a foreign word."""
    template = MEANINGS[name].words
    ours = template.split("=")[0].split(" ")[0]
    number = "0.1" if ours.startswith("methods.") or ours in ("lr", "wd") else "4"
    return (VALUES | NUMBERS).get(ours, number) if "{}" in template.replace("{{}}", "") else ""


def test_what_is_suggested_is_accepted():
    for name in MEANINGS:
        suggested = meaning_of(name, value_for(name))
        words = shlex.split(suggested.words.rpartition(" ... ")[2])
        if words[:1] == ["resnet-recipes"]:
            assert split(words[2:], usage_of(words[1])).words == ["last"], name
            continue
        arguments = split(words, usage_of("train"))
        changes = [word for word in arguments.words if not word.startswith("recipe=")]
        assert parse(changes)[1] == [], name
        assert suggested.words or suggested.rule, name


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_of_others_name_ours(verb):
    assert verb not in verbs.VERBS
    ours = {words.split()[0] for words in VERBS[verb].words.split(" | ")}
    assert ours <= {*verbs.VERBS, "train"}


@pytest.mark.parametrize(
    ("typed", "answer"),
    rows(
        """
--batch-size 256 | bs=256
--batch-size=256 | bs=256
--data-path '/my images' | 'data=/my images'
--gpus 0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
--wandb | 'log.to=[wandb]'
--no-ema | '~methods.ema'
-c mild | recipe=mild
--config-dir conf | --recipes conf
--opt lamb | optimizer=lamb
--ckpt 'a b.pt' | --resume 'a b.pt'
--epochs | epochs=VALUE
--num-classes 10 | leave it out
"""
    ),
)
def test_a_foreign_flag_is_answered_with_the_whole_word(typed, answer):
    with pytest.raises(RecipeError) as refused:
        split(shlex.split(typed), usage_of("train"))
    assert [problem.fix for problem in refused.value.problems] == [answer]


def test_a_foreign_key_is_answered_with_the_whole_word():
    _, problems = parse(["trainer.max_epochs=90", "imgsz=128", "devices=0,1"])
    assert [problem.fix for problem in problems] == [
        "epochs=90",
        "data.train_size=128",
        "CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2",
    ]


def test_commands_without_settings_do_not_suggest_any():
    with pytest.raises(RecipeError) as refused:
        split(["--epochs", "3", "runs"], usage_of("report"))
    assert "epochs=3" not in str(refused.value)


@pytest.mark.parametrize("word", ["device=mps", "launch.device=mps", "accelerator=mps"])
def test_a_device_that_cannot_be_used_is_answered_by_what_is_true(word):
    with pytest.raises(RecipeError, match=r"a Mac's GPU cannot be used\n +launch\.device=cpu"):
        compose("mild", ["data=/dev/null", word], needs_data=False)

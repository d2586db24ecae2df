from dataclasses import replace

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.planning.plan import IMAGENET, make_plan
from resnet_recipes.recipe.compose import compose


def notes(name: str, *changes: str, ranks: int = 8) -> str:
    """Return the notes of a packaged recipe with changes, on ImageNet."""
    found = compose(name, changes, needs_data=False)
    return "\n".join(make_plan(found.recipe, IMAGENET, ranks, found.typed).notes)


@pytest.mark.parametrize("name", ["mild", "medium", "hot"])
def test_the_recipes_as_published_need_no_advice(name):
    assert notes(name) == ""


@pytest.mark.parametrize(
    ("name", "changes", "ranks", "said"),
    [
        ("mild", ["epochs=15"], 8, "The warm-up takes 53 % of the run (8ep, never stretched)"),
        ("medium", ["epochs=59"], 8, "mixup together with label_smoothing costs accuracy"),
        ("hot", ["epochs=180"], 8, "pays off only from 240 epochs"),
        (
            "hot",
            ["epochs=180"],
            8,
            "methods.sam.interval=5: at 180 epochs of Hot, 10 gave the same accuracy",
        ),
        (
            "mild",
            ["max_duration=900ba", "ssr=1", "schedule.warmup=1ba"],
            8,
            "methods.ema (half-life 100ba, updated every 20ba) is slow for 900 steps",
        ),
        (
            "mild",
            ["epochs=16", "methods.ema.update_interval=2000ba"],
            8,
            "methods.ema (half-life 100ba, updated every 2000ba) is slow",
        ),
        ("mild", ["methods.ema.update_interval=500ba"], 8, "little more than the latest weights"),
        (
            "mild",
            ["epochs=3", "schedule.warmup=0.1dur"],
            8,
            "never reaches full size (148 of 176 pixels in the last epoch): epochs=5",
        ),
        (
            "mild",
            [
                "methods.progressive_resizing.finetune=0dur",
                "methods.progressive_resizing.delay=0.8dur",
            ],
            8,
            "methods.progressive_resizing.finetune=0.2dur, or '~methods.progressive_resizing'",
        ),
        (
            "mild",
            ["bs=204800"],
            1,
            "An epoch has only 6 steps; a smaller batch gives more: bs=19200 lr=0.192.",
        ),
        ("mild", [], 16, "batch.bn_size=256, but each rank has 128 examples"),
        (
            "mild",
            ["evaluation.sizes=[192,256]"],
            8,
            "during training, the test size is data.eval_size=224",
        ),
        (
            "mild",
            ["bs=256"],
            1,
            "lr=2.048 is 8 times what is usual with decoupled_sgdw for a batch of 256: 0.256.",
        ),
        (
            "mild",
            ["optimizer=lamb", "lr=1.7"],
            8,
            "lr=1.7 is 340 times what is usual with lamb for a batch of 2048: 0.005.",
        ),
        ("mild", ["optimizer=adamw", "lr=1.7"], 8, "with adamw for a batch of 2048: 0.001."),
        ("mild", ["optimizer=lars", "lr=0.5"], 8, "with lars for a batch of 2048: 8.3."),
    ],
)
def test_what_a_user_may_not_want_is_noted(name, changes, ranks, said):
    assert said in notes(name, *changes, ranks=ranks)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("medium", ["epochs=60"]),
        ("hot", ["epochs=240"]),
        ("mild", ["epochs=16"]),
        ("mild", ["optimizer=lamb"]),
    ],
)
def test_advice_stops_where_its_reason_does(name, changes):
    assert notes(name, *changes) == ""


def test_a_learning_rate_that_was_typed_is_never_scaled():
    typed = ["bs=204800", "optimizer.lr=204.8"]
    assert "a smaller batch gives more: bs=19200." in notes("mild", *typed, ranks=1)
    few = replace(IMAGENET, train_examples=100)
    for words, fix in (
        (["lr=0.1"], "bs=8"),
        (["epochs=18"], "bs=8 lr=0.008"),
        (["optimizer=lamb"], "bs=8 lr=0.000313"),  # by the square root of 8 / 2048
    ):
        found = compose("mild", words, needs_data=False)
        with pytest.raises(RecipeError) as caught:
            make_plan(found.recipe, few, 1, found.typed)
        assert caught.value.problems[0].fix == fix

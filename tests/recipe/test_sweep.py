import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.sweep import points


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["recipe=mild", "seed=1"], [["recipe=mild", "seed=1"]]),
        (
            ["recipe=mild,hot", "seed=1,2"],
            [
                ["recipe=mild", "seed=1"],
                ["recipe=mild", "seed=2"],
                ["recipe=hot", "seed=1"],
                ["recipe=hot", "seed=2"],
            ],
        ),
        (["seed=range(1,4)"], [["seed=1"], ["seed=2"], ["seed=3"]]),
        (
            ["lr=choice(0.5,1.0)", "~methods.ema"],
            [["lr=0.5", "~methods.ema"], ["lr=1.0", "~methods.ema"]],
        ),
        (["~methods.ema,sam"], [["~methods.ema"], ["~methods.sam"]]),
        (["methods.mixup={},null"], [["methods.mixup={}"], ["methods.mixup=null"]]),
        (
            ["data.crop_scale=[0.1,1],[0.25,1]"],
            [["data.crop_scale=[0.1,1]"], ["data.crop_scale=[0.25,1]"]],
        ),
        (
            ["model.name=torchvision:a,timm:b", "data=/a b,'/c, d'"],
            [
                ["model.name=torchvision:a", "data=/a b"],
                ["model.name=torchvision:a", "data=/c, d"],
                ["model.name=timm:b", "data=/a b"],
                ["model.name=timm:b", "data=/c, d"],
            ],
        ),
        (["data=/odd/path (1), a=b"], [["data=/odd/path (1), a=b"]]),
        (
            ["epochs=curve"],
            [
                ["epochs=22.5"],
                ["epochs=30"],
                ["epochs=54"],
                ["epochs=60"],
                ["epochs=72"],
                ["epochs=90"],
            ],
        ),
    ],
)
def test_words_with_several_values_are_combined(words, found):
    assert points(words) == found


def test_a_short_range_may_be_shuffled():
    assert sorted(points(["seed=shuffle(range(1,4))"])) == [["seed=1"], ["seed=2"], ["seed=3"]]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=interval(1,2)"], "no list of values to run"),
        (["recipe=glob(*)"], "no list of values to run"),
        (["seed=range(0,1000000000)"], "the maximum is 1,000"),
        (["seed=shuffle(range(1,99999999))"], "the maximum is 1,000"),
        (["seed=shuffle(range(1.0,9e9))"], "the maximum is 1,000"),
        (["seed=range(nan,1)"], "must be a range of finite numbers"),
        (["lr=range(1,2,nan)"], "must be a range of finite numbers"),
        (["lr=range(0.1,0.5,0.0)"], "must be a range of finite numbers"),
        (["seed=range(0,100)", "lr=range(1,100)"], "would start at least 9,900 runs"),
    ],
)
def test_what_cannot_be_listed_is_refused(words, said):
    with pytest.raises(RecipeError, match=said):
        points(words)

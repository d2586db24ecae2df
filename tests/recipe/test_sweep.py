import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.hydra_compose import points
from tests.tables import rows


@pytest.mark.parametrize(
    ("words", "found"),
    rows(
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
def test_words_with_several_values_are_combined(words, found):
    assert points(words.split()) == [point.split() for point in found.split("; ")]


def test_places_with_spaces_are_combined_too():
    assert points(["model.name=torchvision:a,timm:b", "data=/a b,'/c, d'"]) == [
        [f"model.name={name}", f"data={place}"]
        for name in ("torchvision:a", "timm:b")
        for place in ("/a b", "/c, d")
    ]
    assert points(["data=/odd/path (1), a=b"]) == [["data=/odd/path (1), a=b"]]


def test_a_short_range_may_be_shuffled():
    assert sorted(points(["seed=shuffle(range(1,4))"])) == [["seed=1"], ["seed=2"], ["seed=3"]]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("words", "said"),
    rows(
        """
seed=interval(1,2) | no list of values to run
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
def test_what_cannot_be_listed_is_refused(words, said):
    with pytest.raises(RecipeError, match=said):
        points(words.split())

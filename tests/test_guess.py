import pytest

from resnet_recipes import plan
from resnet_recipes.composing.compose import compose
from resnet_recipes.guess import BILLIONS, cpu_seconds, roughly
from resnet_recipes.plan import BACKBONES, IMAGENET


def seconds(*changes: str, cores: int = 1) -> float:
    return cpu_seconds(plan.of(compose("mild", changes, needs_data=False).recipe, IMAGENET, 1), cores)


def test_the_guess_is_images_times_arithmetic():
    images = 36 * 625 * 2048
    whole = seconds("~methods.progressive_resizing", "data.train_size=224")
    assert whole == pytest.approx(images * 3 * 4.09 / 12)
    assert seconds("~methods.progressive_resizing", "data.train_size=112") == pytest.approx(whole / 4)
    assert seconds("~methods.progressive_resizing", "data.train_size=224",
                   "methods.sam={interval:4}") == pytest.approx(whole * 1.25)
    assert seconds(cores=4) == pytest.approx(seconds() / 4)


def test_every_model_has_its_arithmetic():
    assert BILLIONS.keys() == BACKBONES.keys()


@pytest.mark.parametrize(("length", "said"), [
    (3, "1 minute"), (100, "2 minutes"), (3000, "50 minutes"), (5400, "90 minutes"), (86400, "24 hours"),
    (4 * 86400, "4 days"),
    (80 * 86400, "11 weeks"), (730 * 86400, "100 weeks"), (740 * 86400, "2 years"), (3.2e9, "100 years"),
])
def test_a_length_is_told_in_the_unit_that_a_person_would_use(length, said):
    assert roughly(length) == said

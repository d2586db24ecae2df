import pytest

from resnet_recipes.recipe.foreign import MEANINGS, setting_of
from resnet_recipes.recipe.suggestions import closest
from resnet_recipes.recipe.typed import settings
from tests.tables import rows


@pytest.mark.parametrize(
    ("typed", "meant"),
    rows(
        """
optimiser.lr | optimizer.lr
optimizer.lrr | optimizer.lr
learning_rate | optimizer.lr
lr | optimizer.lr
methods.labelsmoothing.smoothing | methods.label_smoothing.smoothing
methods.mixup.alfa | methods.mixup.alpha
data.num_worker | data.workers
num_workers | data.workers
batch_size | batch.global_size
max_duraton | max_duration
smoothing | methods.label_smoothing.smoothing
ema.half_life | methods.ema.half_life
weight_decay | optimizer.weight_decay
crop | data.train_size
epochs | max_duration
optimizer.wd | optimizer.weight_decay
methods.emma | methods.ema
rnu.root | run.root
trainer.max_epochs | max_duration
imgsz | data.train_size
"""
    ),
)
def test_what_people_type_leads_to_the_setting_they_mean(typed, meant):
    assert closest(typed, settings()) == meant


def test_nonsense_gets_no_suggestion():
    assert closest("xyzzy.plugh", settings()) == ""


def test_every_foreign_word_leads_to_a_setting_or_to_none():
    assert {*map(setting_of, MEANINGS)} <= {"", "recipe", *settings()}


def test_one_wrong_letter_is_nearly_always_understood():
    """Yield every setting with one letter left out, unless that is another setting's name."""
    tried = right = 0
    for key in settings():
        for place in range(0, len(key), 4):
            typo = key[:place] + key[place + 1 :]
            if typo not in settings() and key[place] != "." and "." in key:
                tried += 1
                right += closest(typo, settings()) == key
    assert right / tried > 0.95

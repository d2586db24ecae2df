"""Cards are complete: nothing that a person needs is missing from any of them."""

import pytest

from resnet_recipes.methods import ORDER
from resnet_recipes.methods.card import Setting, card_of
from resnet_recipes.methods.mixup import MixUp


@pytest.mark.parametrize("method", ORDER, ids=lambda method: method.name)
def test_every_card_is_complete(method):
    card = card_of(method)
    assert min(map(len, (card.summary, card.details, card.cost, card.gain, card.hurts))) > 4
    assert not any("\n" in text or "  " in text for text in (card.summary, card.details, card.cost, card.gain, card.hurts))
    assert all(setting.meaning for setting in card.settings)
    assert card.hooks


def test_card_of_mixup():
    card = card_of(MixUp)
    assert card.name == "mixup"
    assert card.summary == "Train on convex combinations of pairs of examples (Zhang et al., 2018, arXiv:1710.09412)."
    assert card.settings == (Setting("alpha", 0.2, "concentration of the Beta distribution, above 0"),)
    assert card.hooks == ("transform_batch",)
    assert card.excludes == ("cutmix", "mixup_or_cutmix")
    assert card.cost.startswith("one gather")
    assert "Table 5" in card.hurts

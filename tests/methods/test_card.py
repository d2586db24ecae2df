"""Cards are read from their classes: docstring, class data and fields."""

from dataclasses import dataclass

from resnet_recipes.methods.card import Setting, make_card
from resnet_recipes.methods.optimizers import DecoupledSGDW


@dataclass
class Toy:
    """Do one thing (Somebody, 2020).

    It does it in
    two lines.

    It differs from the paper.
    """

    name = "toy"
    cost = "none."
    gain = "+1 point."
    avoid_when = "The toy is broken."
    size: int = 3  # pixels, at least 1
    plain: bool = False


def test_make_card_takes_texts_and_settings_of_class():
    card = make_card(Toy)
    assert card[:6] == (
        "toy",
        "Do one thing (Somebody, 2020).",
        ("It does it in two lines.", "It differs from the paper."),
        "none.",
        "+1 point.",
        "The toy is broken.",
    )
    assert card.settings == (Setting("size", 3, "pixels, at least 1"), Setting("plain", False, ""))


def test_card_gives_inherited_settings_their_meaning():
    meanings = {setting.name: setting.meaning for setting in make_card(DecoupledSGDW).settings}
    assert meanings["weight_decay"] == "fraction of a weight lost in one step at the peak lr"
    assert meanings["momentum"] == "fraction of the momentum kept from step to step"
    assert meanings["clip_norm"].startswith("maximum L2 norm")

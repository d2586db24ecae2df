"""`resnet-recipes methods [NAME]`: what each method does, costs and brings."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from resnet_recipes.commands.arguments import WIDTH, Usage, split
from resnet_recipes.composing.suggestions import did_you_mean
from resnet_recipes.errors import Problem, RecipeError

if TYPE_CHECKING:
    from resnet_recipes.methods.card import Card

USAGE = Usage("resnet-recipes methods [NAME]", "list the speed-up methods, or show one with its settings", "resnet-recipes methods mixup")


def run(argv: Sequence[str]) -> int:
    """Print one line for each method, or everything that is known about one."""
    from resnet_recipes.methods import ORDER
    from resnet_recipes.methods.card import card_of

    words = split(argv, USAGE).words
    cards = {method.name: card_of(method) for method in ORDER}
    if strange := [word for word in words if word not in cards]:
        meant = did_you_mean(strange[0], cards) or f"methods: {', '.join(cards)}"
        raise RecipeError([Problem("methods", strange[0], "unknown method", meant)])
    for word in words:
        print("\n".join(_page(cards[word])))
    if not words:
        for card in cards.values():
            print("\n".join(_filled(f"{card.name:<22}", card.summary)))
        print("\nIn the order in which they run. More about one: resnet-recipes methods mixup")
    return 0


def _page(card: "Card") -> Iterator[str]:
    yield card.name
    yield ""
    yield from _filled("  ", card.summary)
    yield from _filled("  ", card.details) if card.details else ()
    yield ""
    for label, text in (("gain", card.gain), ("cost", card.cost), ("hurts", card.hurts), ("acts at", ", ".join(card.hooks)),
                        ("excludes", ", ".join(card.excludes))):
        yield from _filled(f"  {label:<10}", text) if text else ()
    yield ""
    for setting in card.settings:
        yield from _filled(f"  methods.{card.name}.{setting.name}={_written(setting.default)}   ", setting.meaning, indent=6)
    if not card.settings:
        yield f"  methods.{card.name}={{}}   has no settings"
    yield ""


def _filled(label: str, text: str, indent: int | None = None) -> list[str]:
    hanging = " " * (len(label) if indent is None else indent)
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=hanging, break_on_hyphens=False) or [label.rstrip()]


def _written(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else "null" if default is None else str(default)

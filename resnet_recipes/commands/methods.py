"""`resnet-recipes methods [NAME]`: effect, cost and gain of methods and optimizers."""

import re
from collections.abc import Iterator, Sequence

from resnet_recipes.base.errors import Command, Hint, RecipeError
from resnet_recipes.base.suggestions import TRANSLATIONS, Translation, make_unknown_problem
from resnet_recipes.base.text import format_facts, wrap_text
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import get_page_width
from resnet_recipes.command_line.usage import Usage, format_row
from resnet_recipes.recipe.library import Library

USAGE = Usage(
    "resnet-recipes methods [NAME]",
    "list methods and optimizers, or describe one",
    "resnet-recipes methods mixup",
)


def find_methods() -> dict[str, type]:
    """Return the methods and optimizers by name."""
    from resnet_recipes.methods import ORDER
    from resnet_recipes.methods.optimizers import OPTIMIZERS

    return {item.name: item for item in (*ORDER, *OPTIMIZERS)}


def check(arguments: Arguments) -> tuple[list[type]]:
    """Return the methods and optimizers to show. Raises RecipeError if one of them is unknown."""
    cards = find_methods()
    names = arguments.positional
    if unknown := [name for name in names if name not in cards]:
        problem = make_unknown_problem("method", unknown[0], cards)
        translation = TRANSLATIONS.get(unknown[0].lower(), Translation(()))
        meant = [part for part in re.split("[.=]", translation.text) if part in cards]
        if named := [name for name in names if name in cards]:  # as in: methods show mixup
            problem = problem._replace(fix=Command.of("resnet-recipes", "methods", *named))
        elif meant:
            problem = problem._replace(fix=(meant[0], Hint(translation.note)))
        elif unknown[0] in Library().list_names():
            problem = problem._replace(fix=Command.of("resnet-recipes", "show", unknown[0]))
        raise RecipeError([problem._replace(valid=() if problem.fix else problem.valid)])
    return ([cards[name] for name in names],)


def run(_: Arguments, shown: list[type]) -> int:
    """Print one line per method and optimizer, or the complete card of one of them."""
    from resnet_recipes.methods import ORDER
    from resnet_recipes.methods.optimizers import OPTIMIZERS

    width = get_page_width()
    for item in shown:
        print("\n".join(_format_page(item, width)))
    if not shown:
        order = f"Methods are listed in the order they run. For details, run: {USAGE.example}"
        lines = [*_list_cards(ORDER, width), "", *wrap_text(order, width), ""]
        lines += ["Optimizers, chosen by optimizer.name:", "", *_list_cards(OPTIMIZERS, width)]
        print("\n".join(lines))
    return 0


def _list_cards(items: Sequence[type], width: int) -> list[str]:
    from resnet_recipes.methods.card import make_card

    return [format_row(card.name, card.summary, 0, 24, width) for card in map(make_card, items)]


def _format_page(item: type, width: int) -> Iterator[str]:
    from resnet_recipes.methods import list_rivals
    from resnet_recipes.methods.base import HOOKS, Method
    from resnet_recipes.methods.card import make_card

    card = make_card(item)
    is_method = issubclass(item, Method)
    prefix = f"methods.{card.name}" if is_method else "optimizer"
    hooks = [hook for hook in HOOKS if item().provides(hook)] if is_method else []
    facts = {
        "gain": card.gain,
        "cost": card.cost,
        "inference": item.inference if is_method else "",
        "avoid when": card.avoid_when,
        "acts at": ", ".join(hooks),
        "excludes": ", ".join(list_rivals(item)) if is_method else "",
    }
    yield card.name
    for text in filter(None, (card.summary, *card.details)):
        yield from ("", *wrap_text(text, width, "  ", "  "))
    yield ""
    yield from format_facts((fact for fact in facts.items() if fact[1]), width, 14, 2)
    yield ""
    if not is_method:
        yield f"  optimizer.name={card.name}"
    for setting in card.settings:
        head = f"  {prefix}.{setting.name}={setting.default_text}   "
        yield from wrap_text(setting.meaning, width, head, " " * 6)
    if not card.settings:
        yield f"  {prefix}={{}}   has no settings"
    if is_method:
        yield from ("", "  In your own training loop:")
        yield from (f"    {line}" for line in format_example(item, hooks))
    yield ""


#: The call of each hook in a training loop.
_CALLS = {
    "augment_image": "image = method.augment_image()(image, np.random.default_rng(0))  # PIL",
    "modify_model": "method.modify_model(model)                    # before creating the optimizer",
    "transform_batch": "batch = method.transform_batch(batch, now)",
    "loss": "loss = method.loss(model(batch.images), batch.targets).mean()",
    "change_loss": "losses = method.change_loss(losses, model(batch.images), batch)",
    "gradient": "losses = method.gradient(compute, params, now)  # compute() adds to .grad",
    "after_step": "method.after_step(model, now)                 # after optimizer.step()",
    "eval_weights": "with method.eval_weights(model): evaluate()",
}


def format_example(item: type, hooks: Sequence[str]) -> Iterator[str]:
    """Yield code that uses a method in another training loop."""
    ours = item.__module__.startswith("resnet_recipes.")
    yield "import resnet_recipes as rr"
    if ours:
        yield f"method = rr.methods.{item.__name__}()"
    else:
        yield f"from {item.__module__} import {item.__name__}"
        yield f"method = {item.__name__}()"
    if {"transform_batch", "gradient", "after_step"} & {*hooks}:
        yield "now = rr.methods.Now.at(step, total_steps, steps_per_epoch)"
    if {"transform_batch", "loss"} & {*hooks}:
        yield "batch = rr.methods.Batch.of(images, labels, num_classes)"
    if getattr(item, "network_setting", ""):
        yield "method.take_network(teacher)                  # images to logits, without gradients"
    yield from (_CALLS[hook] for hook in hooks)

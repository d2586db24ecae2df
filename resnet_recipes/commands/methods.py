"""`resnet-recipes methods [NAME]`: what each method and each optimizer does, costs and gains."""

from collections.abc import Iterator, Sequence

from resnet_recipes.base.card import card_of
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.text import wrapped
from resnet_recipes.commands.arguments import Arguments, row
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.table import page_width
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.base import HOOKS, Method
from resnet_recipes.optim import OPTIMIZERS
from resnet_recipes.recipe.suggestions import did_you_mean


def run(arguments: Arguments) -> int:
    """Print one line for each method and optimizer, or everything about one."""
    words = arguments.words
    known = {item.name: item for item in (*ORDER, *OPTIMIZERS)}
    if strange := [word for word in words if word not in known]:
        meant = did_you_mean(strange[0], known) or f"methods: {', '.join(known)}"
        raise RecipeError.of("methods", strange[0], "unknown method", meant)
    for word in words:
        print("\n".join(_page(known[word])))
    if not words:
        print("\n".join(_list(ORDER)))
        example = PAGES["methods"].example
        order = f"Methods are in the order in which they run. More about one: {example}"
        print("", *_filled("", order), "", "Optimizers, chosen by optimizer.name:", "", sep="\n")
        print("\n".join(_list(OPTIMIZERS)))
    return 0


def _list(items: Sequence[type]) -> Iterator[str]:
    for card in map(card_of, items):
        yield from row(card.name, card.summary, 0, 24, page_width()).splitlines()


def _page(item: type) -> Iterator[str]:
    card, is_method = card_of(item), issubclass(item, Method)
    prefix = f"methods.{card.name}" if is_method else "optimizer"
    hooks = [hook for hook in HOOKS if item().provides(hook)] if is_method else []
    excludes = sorted(item.conflicts) if is_method else []
    yield card.name
    yield ""
    yield from _filled("  ", card.summary)
    yield from _filled("  ", card.details) if card.details else ()
    yield ""
    for label, text in (
        ("gain", card.gain),
        ("cost", card.cost),
        ("avoid when", card.avoid_when),
        ("acts at", ", ".join(hooks)),
        ("excludes", ", ".join(excludes)),
    ):
        yield from _filled(f"  {label:<12}", text) if text else ()
    yield ""
    if not is_method:
        yield f"  optimizer.name={card.name}"
    for setting in card.settings:
        yield from _filled(
            f"  {prefix}.{setting.name}={setting.written}   ", setting.meaning, indent=6
        )
    if not card.settings:
        yield f"  {prefix}={{}}   has no settings"
    if is_method:
        yield ""
        yield "  In your own training loop:"
        yield from (f"    {line}" for line in in_your_loop(item, hooks))
    yield ""


#: How a training loop calls each hook.
_CALLS = {
    "augment_sample": "image = method.augment_sample()(image, np.random.default_rng(0))  # PIL",
    "modify_model": "method.modify_model(model)                    # before creating the optimizer",
    "transform_batch": "batch = method.transform_batch(batch, now)",
    "loss": "loss = method.loss(model(batch.images), batch.targets).mean()",
    "change_loss": "losses = method.change_loss(losses, model(batch.images), batch)",
    "gradient": "losses = method.gradient(compute, params, now)  # compute() adds to .grad",
    "after_step": "method.after_step(model, now)                 # after optimizer.step()",
    "eval_weights": "with method.eval_weights(model): evaluate()",
}


def in_your_loop(item: type, hooks: Sequence[str]) -> Iterator[str]:
    """Yield the code that uses a method in another training loop."""
    ours = item.__module__.startswith("resnet_recipes.")
    yield "import resnet_recipes as rr"
    if not ours:
        yield f"from {item.__module__} import {item.__name__}"
    yield f"method = {'rr.methods.' * ours}{item.__name__}()"
    if {"transform_batch", "gradient", "after_step"} & {*hooks}:
        yield "now = rr.methods.Now.at(step, total_steps, steps_per_epoch)"
    if {"transform_batch", "loss"} & {*hooks}:
        yield "batch = rr.methods.Batch.of(images, labels, num_classes)"
    if getattr(item, "network_setting", ""):
        yield "method.take_network(teacher)                  # images to logits, without gradients"
    yield from (_CALLS[hook] for hook in hooks)


def _filled(label: str, text: str, indent: int | None = None) -> list[str]:
    hanging = " " * (len(label) if indent is None else indent)
    return wrapped(text, page_width(), label, hanging)

"""The model card of an exported network: Markdown, with a header for model hubs."""

import yaml

from resnet_recipes import __version__
from resnet_recipes.backbones import get_library
from resnet_recipes.base.text import escape_markdown
from resnet_recipes.network.about import NetworkDescription

_MAX_CLASSES = 20  # number of class names shown

#: The `library_name` in model hubs, by export format.
_LIBRARIES = {"timm": "timm", "onnx": "onnx"}

#: Text for the side that is resized, by `fit`.
_RESIZED_SIDES = {
    "crop": "shorter side",
    "pad": "longer side (padded with the mean color to a square)",
    "squash": "both sides",
}


def make_model_card(
    about: NetworkDescription, to: str, use: str, checked: str, dtype: str = "float32"
) -> str:
    """Return the README.md of an exported network.

    `use` is Python code, `checked` is a sentence about how the export was verified, and `dtype` is
    the type of the weights.
    """
    title = f"{about.architecture}, {about.num_classes:,} classes"
    return "\n".join(
        [
            "---",
            yaml.safe_dump(_make_header(about, to, title), sort_keys=False).rstrip(),
            "---",
            "",
            f"# {title}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {escape_markdown(value)} |" for name, value in _make_rows(about, dtype)),
            "",
            "## Use",
            "",
            "```python",
            use,
            "```",
            "",
            checked,
            "",
        ]
    )


def _make_header(about: NetworkDescription, to: str, title: str) -> dict[str, object]:
    header: dict[str, object] = {
        "license": "other",
        "library_name": _LIBRARIES.get(to, "pytorch"),
        "pipeline_tag": "image-classification",
        "tags": [
            "image-classification",
            *["resnet"] * ("resnet" in about.architecture),
            "resnet-recipes",
        ],
    }
    accuracies = _list_accuracies(about)
    if not accuracies:
        return header
    metrics = [
        {"type": "accuracy", "name": name, "value": round(value, 3)}
        for name, value in accuracies.items()
    ]
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": "validation images", "type": "images"},
        "metrics": metrics,
    }
    return header | {"model-index": [{"name": title, "results": [result]}]}


def _list_accuracies(about: NetworkDescription) -> dict[str, float]:
    """Return the known accuracies in percent; with at most five classes, top-5 is always 100%."""
    values = {"top-1": about.top1_percent, "top-5": about.top5_percent}
    if about.num_classes <= 5:
        del values["top-5"]
    return {name: value for name, value in values.items() if value is not None}


def _make_rows(about: NetworkDescription, dtype: str) -> list[tuple[str, str]]:
    library = get_library(about.architecture)
    name = about.architecture.rpartition(":")[2]
    arguments = [f"{key}={value}" for key, value in about.arguments.items()]
    architecture = ", ".join([f"{library}'s {name}", *arguments])
    changes = []
    for name, settings in about.method_settings.items():
        values = ", ".join(f"{key}={value}" for key, value in settings.items())
        changes.append(f"{name} ({values})")
    names = ", ".join(about.classes[:_MAX_CLASSES])
    more = len(about.classes) - _MAX_CLASSES
    images = f" on {about.eval_examples:,} validation images"
    images += ", mean over each image and its horizontal flip" if about.flip else ""
    chosen = f"the best evaluation of {about.best_of} on these images, a biased choice"
    chosen = chosen if about.best_of else ""
    rows = [
        ("architecture", architecture),
        ("changed by", "; ".join(changes)),
        ("weights", dtype),
        ("classes", names + (f" and {more:,} more" if more > 0 else "")),
        *((name, f"{value:.2f}%{images}") for name, value in _list_accuracies(about).items()),
        ("chosen", chosen),
        (
            "images",
            f"RGB; {_RESIZED_SIDES[about.fit]} resized to {about.eval_resize} px "
            f"({about.eval_interpolation}, antialiased), center crop of {about.eval_size} px",
        ),
        ("data.train_size", f"{about.train_size} px" if about.recipe else ""),
        ("mean, std", f"{list(about.mean)}, {list(about.std)}, for pixels from 0 to 255"),
        ("recipe", f"{about.recipe}, epochs: {about.epochs:g}" if about.recipe else ""),
        ("license", about.license),
        ("made with", f"resnet-recipes {__version__}"),
    ]
    return [row for row in rows if row[1]]

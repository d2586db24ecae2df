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
_SIDES = {
    "crop": "shorter side",
    "pad": "longer side, padded with the mean color to a square,",
    "squash": "both sides",
}


def make_model_card(about: NetworkDescription, to: str, use: str, checked: str) -> str:
    """Return the README.md of an exported network.

    `use` is Python code, and `checked` is a sentence about how the export was verified.
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
            *(f"| {name} | {escape_markdown(value)} |" for name, value in _make_rows(about)),
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
        "license_name": "that-of-the-images",
        "library_name": _LIBRARIES.get(to, "pytorch"),
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "resnet", "resnet-recipes"],
    }
    if about.top1_percent is None:
        return header
    metrics = [
        {"type": "accuracy", "name": name, "value": round(value, 3)}
        for name, value in (("top-1", about.top1_percent), ("top-5", about.top5_percent))
        if value is not None
    ]
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": "validation images", "type": "images"},
        "metrics": metrics,
    }
    return header | {"model-index": [{"name": title, "results": [result]}]}


def _make_rows(about: NetworkDescription) -> list[tuple[str, str]]:
    library, name = get_library(about.architecture), about.architecture.rpartition(":")[2]
    arguments = [f"{key}={value}" for key, value in about.arguments.items()]
    architecture = ", ".join([f"{library}'s {name}", *arguments])
    changes = []
    for name, settings in about.method_settings.items():
        values = ", ".join(f"{key}={value}" for key, value in settings.items())
        changes.append(f"{name} ({values})")
    names, more = ", ".join(about.classes[:_MAX_CLASSES]), len(about.classes) - _MAX_CLASSES
    accuracy = ""
    if about.top1_percent is not None:
        accuracy = f"{about.top1_percent:.2f}%, {about.top5_percent or 0:.2f}%"
        accuracy += f" of {about.eval_examples:,} images"
        accuracy += ", mean over each image and its horizontal flip" if about.flip else ""
    rows = [
        ("architecture", architecture),
        ("changed by", "; ".join(changes)),
        ("classes", names + (f" and {more:,} more" if more > 0 else "")),
        ("top-1, top-5", accuracy),
        (
            "chosen",
            f"the best evaluation of {about.best_of} on these images, a biased choice"
            if about.best_of
            else "",
        ),
        (
            "images",
            f"RGB; {_SIDES[about.fit]} to {about.eval_resize} px ({about.eval_interpolation}, "
            f"antialiased), center crop of {about.eval_size} px",
        ),
        ("trained at", f"{about.train_size} px" if about.recipe else ""),
        ("mean, std", f"{list(about.mean)}, {list(about.std)} of 0..255"),
        ("recipe", f"{about.recipe}, epochs: {about.epochs:g}" if about.recipe else ""),
        ("license", about.license),
        ("made with", f"resnet-recipes {__version__}"),
    ]
    return [row for row in rows if row[1]]

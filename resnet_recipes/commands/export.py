"""`resnet-recipes export RUN --to FORMAT --out FOLDER`: write a trained network for another program, and check it."""

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError, TrainingError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments, Usage
from resnet_recipes.commands.trained import trained

if TYPE_CHECKING:
    from torch import Tensor

    from resnet_recipes.commands.trained import Trained
    from resnet_recipes.network.network import Network

USAGE = Usage(
    "resnet-recipes export RUN|FILE --to FORMAT --out FOLDER [data=PATH]",
    "write a trained network for another program, and compare what that program computes "
    "with the run",
    "resnet-recipes export runs/NAME --to onnx --out exported",
    {
        "--to FORMAT": "torchvision, timm, safetensors, onnx, torchscript or exported_program",
        "--out FOLDER": "a new folder for the network and README.md, its model card",
        "--fold-batchnorm": "fold BatchNorm into the convolutions (onnx, torchscript, "
        "exported_program)",
    },
    """\
The network is complete: it contains BlurPool, and StochasticDepth's factors are
part of its weights. The other program reads it back, and its results are compared
on 64 validation images (of the run, or of PATH; random ones if there are none), at
two sizes. ONNX accepts batches and images of any size.""",
)

_IMAGES = 64

#: Share of the largest logit by which an export may differ: float32 sums in another order differ by
#: 1e-6 to 1e-5 of it.
_TOLERANCE = 1e-3


def run(arguments: Arguments) -> int:
    """Export, compare, and print the largest difference."""
    to, out, folds = (
        arguments.flags.get("--to"),
        arguments.flags.get("--out"),
        "--fold-batchnorm" in arguments,
    )
    if lacking := [
        Problem(flag, None, "is missing", USAGE.example)
        for flag in ("--to", "--out")
        if flag not in arguments
    ]:
        raise RecipeError(lacking)
    from resnet_recipes.network.export import problems

    folder = typed_path("--out", out)
    if folder.exists():
        raise RecipeError(
            [
                Problem(
                    "--out", out, "already exists; an export creates a new folder", "--out another"
                )
            ]
        )
    network = trained([*arguments.words, "launch.device=cpu"], USAGE.example)
    if found := list(problems(network.network, to, folds)):
        raise RecipeError(found)
    images, which = _images(network)
    draft = folder.absolute().with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    try:
        draft.mkdir(parents=True)
        for line in _exported(network.network, to, draft, (images, which), folds):
            print(line)
        draft.rename(folder)
    except OSError as error:
        raise NotReadyError(
            [Problem("--out", out, f"cannot be written: {error.strerror}")]
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    print(f"written   {folder}")
    return 0


def _images(network: "Trained") -> "tuple[Tensor, str]":
    """Return normalised images [64, 3, S, S] to compare on, and which they are."""
    import torch

    from resnet_recipes.data.normalize import normalize

    try:
        labelled, parts = network.open_images(), []
    except NotReadyError:
        size = network.recipe.data.eval_size
        drawn = torch.randint(
            256, (_IMAGES, 3, size, size), generator=torch.Generator().manual_seed(0)
        )
        return normalize(drawn.to(torch.uint8)), f"{_IMAGES} random images"
    try:
        for raw in labelled.batches():
            parts.append(normalize(raw.pixels))
            if sum(map(len, parts)) >= _IMAGES:
                break
    finally:
        labelled.close()
    images = torch.cat(parts)[:_IMAGES]
    return images, f"{len(images)} validation images"


def _exported(
    network: "Network", to: str, folder: Path, compared: "tuple[Tensor, str]", folds: bool
) -> list[str]:
    """Write the network and its card into a folder; return lines to print. Raises TrainingError if results differ."""
    import torch

    from resnet_recipes.network.export import TARGETS, export, largest_difference
    from resnet_recipes.network.folding import fold_batchnorm
    from resnet_recipes.network.model_card import model_card
    from resnet_recipes.network.network import Network

    (images, which), notes = compared, []
    model = network.model.to(memory_format=torch.contiguous_format)
    written = Network(fold_batchnorm(model) if folds else model, network.about)
    if folds:
        notes.append(
            f"folded    {largest_difference(model, written.model, images)[0]:.2g} by "
            "folding BatchNorm"
        )
    difference, scale = largest_difference(model, export(written, to, folder), images)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    if not difference <= _TOLERANCE * max(1.0, scale):
        raise TrainingError(
            f"{to} computes different logits: they differ by up to {difference:.2g} of "
            f"{scale:.2g} on "
            f"{which}; nothing was written"
        )
    result = f"largest difference of logits {difference:.2g}, of {scale:.3g}, on {which}"
    card = model_card(
        network.about, to, TARGETS[to].use, f"Read by its own runtime after the export: {result}."
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return [f"network   {TARGETS[to].file} for {to}, {size:,.1f} MB", *notes, f"compared  {result}"]

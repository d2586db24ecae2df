"""Export a trained network, and check that its target program computes what the network does."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from resnet_recipes import backbones
from resnet_recipes.base import atomic
from resnet_recipes.base.architecture import NETWORKS
from resnet_recipes.base.errors import Kind, NotReadyError, Problem, TrainingError
from resnet_recipes.base.extras import lacking
from resnet_recipes.base.suggestions import FORMATS, Meaning
from resnet_recipes.base.text import Progress, counted, silent
from resnet_recipes.data import demo
from resnet_recipes.data.images.decode import BadImageError
from resnet_recipes.inference.formats import TARGETS, RunProgram, export, largest_difference, usage
from resnet_recipes.inference.inputs import Preprocessed
from resnet_recipes.inference.model_card import model_card
from resnet_recipes.inference.trained import Trained
from resnet_recipes.network.fuse import fold_batchnorm
from resnet_recipes.network.load import Network

#: Images that an export is compared on.
IMAGES = 64

#: Share of the largest logit by which an export may differ: float32 sums in another order differ by
#: 1e-6 to 1e-5 of it.
_TOLERANCE = 1e-3

#: By which probabilities may differ from `predict`: preprocessing rounds a few of 1,000 pixels to
#: the next of 256 levels.
_SHARE_TOLERANCE = 0.01

#: An image as `predict` reads it, float32 [3, S, S], and as the programs in docs/howto/deploy.md
#: do, uint8 [H, W, 3].
DecodedImage = tuple[Tensor, np.ndarray]


class Exported(NamedTuple):
    """What was written, and how it compares."""

    bytes: int
    folding: float | None  # largest difference of logits by folding BatchNorm; None: not folded
    comparison: str  # the largest difference to what the target program computes, and on what


def export_checked(
    trained: Trained,
    to: str,
    folder: Path,
    folds: bool,
    preprocesses: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a network for the program `to` and its model card into a new folder.

    The folder is whole or absent. Raises TrainingError if the program computes something else,
    NotReadyError if the folder cannot be written.
    """
    try:
        with atomic.new_folder(folder.absolute()) as draft:
            return _written(trained, to, draft, folds, preprocesses, progress)
    except OSError as error:
        raise NotReadyError.of(
            "--out", str(folder), f"cannot be written: {error.strerror}"
        ) from None


def _written(
    trained: Trained, to: str, folder: Path, folds: bool, preprocesses: bool, progress: Progress
) -> Exported:
    images, which = _images(trained)
    about, folding = trained.about, None
    model = written = trained.model.to(memory_format=torch.contiguous_format)
    if folds:
        written = fold_batchnorm(model)
        folding = largest_difference(model, written, images, progress)[0]
    whole = Network(Preprocessed(written, about) if preprocesses else written, about)
    read = export(whole, to, folder)
    if preprocesses:
        pictures, which = _pictures(trained)
        difference, allowed = (
            _difference_of_shares(trained.used, read, pictures),
            _SHARE_TOLERANCE,
        )
        text = f"largest difference of probabilities {difference:.2g}, on {which}"
    else:
        difference, scale = largest_difference(model, read, images, progress)
        allowed = _TOLERANCE * max(1.0, scale)
        text = f"largest difference of logits {difference:.2g}, of {scale:.3g}, on {which}"
    if not difference <= allowed:  # nan is not
        raise TrainingError(f"{to} computes something else: {text}; nothing was written")
    size = sum(path.stat().st_size for path in folder.iterdir())
    said = f"Read by its own runtime after the export: {text}."
    card = model_card(about, to, usage(whole, to), said)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return Exported(size, folding, text)


@torch.no_grad()
def _difference_of_shares(
    network: Network, read: RunProgram, pictures: Sequence[DecodedImage]
) -> float:
    """Return the largest difference of probabilities to those of `predict`."""
    differences = []
    for transformed, pixels in pictures:
        images = transformed[None]
        logits = network(images)
        if network.about.flip:
            logits = (logits + network(images.flip(3))) / 2
        differences.append(logits.softmax(1) - read(torch.from_numpy(pixels)[None]))
    return float(torch.cat(differences).abs().max())


def _pictures(trained: Trained) -> tuple[list[DecodedImage], str]:
    """Return whole pictures to compare on, and which they are."""
    paths = []
    with suppress(NotReadyError), closing(trained.open_images(fetches=False)) as labelled:
        chosen = np.linspace(0, labelled.examples - 1, min(IMAGES, labelled.examples)).astype(int)
        paths = [path for path in map(labelled.path, chosen.tolist()) if Path(path).is_file()]
    pictures = [_read(trained.used, place) for place in paths or _drawn()]
    sizes = counted(len({pixels.shape for _, pixels in pictures}), "size")
    kind = "validation" if paths else "drawn"  # samples of a .beton file are no files
    return pictures, f"{len(pictures)} {kind} images of {sizes}"


def _read(network: Network, place: str | Image.Image) -> DecodedImage:
    """Read an image file in both ways. Raises TrainingError if it is damaged."""
    try:
        transformed = network.transform(place)
    except BadImageError as error:
        raise TrainingError(f"{place} {error}") from None
    image = Image.open(place) if isinstance(place, str) else place
    if image.mode[0] == "I":
        image = Image.fromarray((np.asarray(image) >> 8).astype("uint8"))
    return transformed, np.array(image.convert("RGB"))


def _drawn() -> list[Image.Image]:
    """Draw images: on noise, trained networks amplify what preprocessing rounds."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(40, 400, (IMAGES, 2)).tolist()
    names = islice(cycle(demo.CLASSES), IMAGES)
    return [demo.picture(name, rng).resize(size) for name, size in zip(names, sizes, strict=True)]


def _images(trained: Trained) -> tuple[Tensor, str]:
    """Return normalised images [64, 3, S, S] to compare on, and which they are."""
    try:
        with closing(trained.open_images(fetches=False)) as labelled:
            first = labelled.only(np.arange(min(IMAGES, labelled.examples)))
            images = torch.cat([labelled.normalized(raw) for raw in first])
    except NotReadyError:
        drawn = map(trained.used.transform, _drawn())
        return torch.stack(list(drawn)), f"{IMAGES} drawn images"
    return images, f"{len(images)} validation images"


def problems(
    network: Network, to: str, folds: bool, preprocesses: bool = False
) -> Iterator[Problem]:
    """Yield why a network cannot be written as `to`.

    `folds` says whether BatchNorm is folded, `preprocesses` whether it has its preprocessing.
    """
    if to not in TARGETS:
        meant, rule = FORMATS.get(to.lower(), Meaning(to.lower()))
        fitting = [
            name
            for name in (meant, "safetensors")
            if meant in TARGETS and not any(problems(network, name, folds, preprocesses))
        ]
        fix = f"--to {fitting[0]}" if fitting else ""
        yield Problem("--to", to, rule, fix, tuple(TARGETS))
        return
    if preprocesses and not TARGETS[to].use_preprocessed:
        able = tuple(f"--to {name}" for name, target in TARGETS.items() if target.use_preprocessed)
        yield Problem("--with-preprocessing", None, f"cannot be part of {to}", able)
    graphs = ("--to onnx", "--to exported_program")
    library = backbones.from_library(network.about.architecture)
    if {to, library} == {"timm", "torchvision"} and ":" in network.about.architecture:
        rule = f"has no network like {network.about.architecture}"
        yield Problem("--to", to, rule, (f"--to {library}", *graphs))
    is_own = bool(network.about.arguments) and network.about.architecture in NETWORKS
    if is_own and not TARGETS[to].takes_any:
        rule = "has no ResNet of this stem, width or number of input channels"
        yield Problem("--to", to, rule, ("--to safetensors", *graphs))
    if network.about.surgery and not TARGETS[to].takes_any:
        rule = (
            f"does not support {' and '.join(network.about.surgery)}, which is part of this network"
        )
        if to == "timm":
            rule += "; timm's resnetblur50 blurs in other places and is a different network"
        yield Problem("--to", to, rule, ("--to safetensors", *graphs))
    if folds and to in ("torchvision", "timm", "safetensors"):
        rule = f"removes BatchNorm, which {to}'s own network has"
        yield Problem("--fold-batchnorm", None, rule, graphs)
    if folds and not backbones.is_resnet(network.model):
        rule = f"is for ResNets; {network.about.architecture} orders its layers differently"
        yield Problem("--fold-batchnorm", None, rule, kind=Kind.UNUSED)


def missing(to: str) -> Iterator[Problem]:
    """Yield which packages `to` needs that are not installed."""
    return lacking("--to", to, *TARGETS[to].needs)

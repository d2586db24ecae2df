"""Export a trained network and check that the target program gives the same outputs."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import replace
from itertools import cycle, islice
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Kind, NotReadyError, Problem, TrainingError
from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.base.text import Progress, format_count
from resnet_recipes.data import demo
from resnet_recipes.data.images.decode import BadImageError, read_file, read_pixels
from resnet_recipes.inference.formats import (
    FORMATS,
    compare_logits,
    export,
    format_usage,
    quantize_onnx,
)
from resnet_recipes.inference.inputs import (
    HalfNetwork,
    PreprocessingNetwork,
    Program,
    is_any_size_accepted,
)
from resnet_recipes.inference.model_card import make_model_card
from resnet_recipes.inference.trained_network import TrainedNetwork
from resnet_recipes.network.load import Network
from resnet_recipes.training.evaluate import compute_logits

#: Number of images used to compare an export.
COMPARED_IMAGES = 64

#: Formats that contain the computation as well as the weights.
_GRAPHS = ("onnx", "exported_program")

#: Tolerance of an export as a fraction of the largest logit: a different order of float32 sums
#: changes a logit by 1e-6 to 1e-5 of it.
_TOLERANCE = 1e-3

#: Tolerance of probabilities, compared with `predict`: preprocessing rounds a few of 1,000 pixels
#: to the next of 256 levels.
_PROBABILITY_TOLERANCE = 0.01

#: One image in two forms: float32 [3, S, S] as in `predict`, and uint8 [H, W, 3] as in the programs
#: in docs/howto/deploy.md.
DecodedImage = tuple[Tensor, np.ndarray]


class ExportOptions(NamedTuple):
    """Options of an export, and of its comparison with the network."""

    preprocesses: bool = False
    dtype: str = "float32"  # weights and computation: float32, float16 or int8
    # maximum loss of top-1 on all validation images, in percentage points; None: not measured
    lose: float | None = None
    needs_images: bool = False  # whether it must be compared on validation images


class ExportResult(NamedTuple):
    """The size of an export, its input, and how its outputs compare with the network."""

    bytes: int
    any_size: bool  # whether it accepts images of any size
    comparison: str  # program that read it, largest difference of outputs, and the images used


def export_and_check(
    trained: TrainedNetwork,
    to: str,
    folder: Path,
    options: ExportOptions,
    progress: Progress,
) -> ExportResult:
    """Write a network for the program `to`, with its model card, to a new folder.

    The folder is either complete or absent. Raises TrainingError if the export fails or its outputs
    differ, NotReadyError if the folder cannot be written, or if there are no validation images to
    measure the loss of accuracy.
    """
    try:
        with atomic.create_folder(folder.absolute()) as draft:
            return _write(trained, to, draft, options, progress)
    except OSError as error:
        raise NotReadyError.of(
            "--out", str(folder), f"cannot be written: {error.strerror}"
        ) from None


def _write(
    trained: TrainedNetwork,
    to: str,
    folder: Path,
    options: ExportOptions,
    progress: Progress,
) -> ExportResult:
    images, which = _load_images(trained, options.needs_images or options.lose is not None)
    about = trained.about
    model = written = trained.model.to(memory_format=torch.contiguous_format)
    if options.preprocesses:
        written = PreprocessingNetwork(written, about)
    if options.dtype == "float16":
        written = deepcopy(written).half()
        if not all(tensor.isfinite().all() for tensor in written.state_dict().values()):
            clause = "some weights exceed 65,504, the largest number of float16"
            raise TrainingError(f"{clause}; nothing was written")
        written = HalfNetwork(written) if to in _GRAPHS else written
    network = Network(written, about)
    read = export(network, to, folder)
    if options.dtype == "int8":
        read = quantize_onnx(network, folder, images)
    if options.preprocesses:
        decoded, which = _load_decoded_images(trained)
        difference = _compare_probabilities(trained, read, decoded)
        allowed = _PROBABILITY_TOLERANCE
        text = f"probabilities differ by at most {difference:.2g} on {which}"
    else:
        difference, scale = compare_logits(model, read, images, progress)
        allowed = _TOLERANCE * max(1.0, scale) if options.dtype == "float32" else inf
        text = f"logits differ by at most {difference:.2g} (largest logit {scale:.3g}) on {which}"
        text = text if difference else f"logits are equal on {which}"
    if not difference <= allowed:  # also rejects nan
        raise TrainingError(f"{to} computes different results: {text}; nothing was written")
    if options.lose is not None:
        before, after = (_measure_top1(trained, program, progress) for program in (model, read))
        text += f". Top-1 on all validation images: {before:.2f}% before, {after:.2f}% after export"
        if before - after > options.lose:
            raise TrainingError(
                f"the file loses {before - after:.2f} points of top-1 ({before:.2f}% to "
                f"{after:.2f}%), and --lose allows {options.lose:g}; nothing was written",
                (
                    f"--lose {ceil(before - after)}",
                    "--dtype float16" if options.dtype == "int8" else "",
                ),
            )
    size = sum(path.stat().st_size for path in folder.iterdir())
    reader = FORMATS[to].program
    checked = f"The file was read with {reader} and compared with the trained network: {text}."
    any_size = options.preprocesses or is_any_size_accepted(read)
    usage = format_usage(network, to, any_size)
    card = make_model_card(about, to, usage, checked, options.dtype)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return ExportResult(size, any_size, f"in {reader}: {text}")


def _measure_top1(trained: TrainedNetwork, program: Program, progress: Progress) -> float:
    model: Any = nn.Identity()
    model.forward = lambda images: program(images)  # exported programs reject train() and eval()
    network = Network(model, trained.about)
    return replace(trained, network=network).evaluate(progress).metrics.top1


@torch.no_grad()
def _compare_probabilities(
    trained: TrainedNetwork, read: Program, decoded: Sequence[DecodedImage]
) -> float:
    model, precision, flip = trained.model, trained.precision, trained.recipe.evaluation.flip
    differences = [
        compute_logits(model, transformed[None], precision, flip).softmax(1)
        - read(torch.from_numpy(pixels)[None])
        for transformed, pixels in decoded
    ]
    return float(torch.cat(differences).abs().max())


def _load_decoded_images(trained: TrainedNetwork) -> tuple[list[DecodedImage], str]:
    """Return images in both forms for the comparison, and a description of them."""
    paths = []
    with suppress(NotReadyError), closing(trained.open_images(fetches=False)) as loader:
        chosen = _choose_images(loader.examples).tolist()
        paths = [path for path in map(loader.source.path, chosen) if Path(path).is_file()]
    decoded = [_decode(trained.described_network, source) for source in paths or _generate_images()]
    sizes = format_count(len({pixels.shape for _, pixels in decoded}), "size")
    kind = "validation" if paths else "random"  # samples of a .beton file are not files
    return decoded, f"{len(decoded)} {kind} images of {sizes}"


def _decode(network: Network, source: str | Image.Image) -> DecodedImage:
    """Decode an image for the network and the export. Raises TrainingError if it is damaged."""
    try:
        image = read_pixels(read_file(source) if isinstance(source, str) else source)
    except BadImageError as error:
        raise TrainingError(f"{source} {error}") from None
    return network.transform(image.pixels()), image.pixels()


def _choose_images(examples: int) -> np.ndarray:
    """Return the numbers of the images to compare, spread over all of `examples`.

    Images are sorted by class, and the ranges of int8 activations come from these images.
    """
    return np.linspace(0, examples - 1, min(COMPARED_IMAGES, examples)).astype(int)


def _generate_images() -> list[Image.Image]:
    """Generate demo images: on noise, a trained network would amplify rounding errors."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(40, 400, (COMPARED_IMAGES, 2)).tolist()
    names = islice(cycle(demo.DEMO_CLASSES), COMPARED_IMAGES)
    return [
        demo.draw_picture(name, rng).resize(size) for name, size in zip(names, sizes, strict=True)
    ]


def _load_images(trained: TrainedNetwork, is_required: bool) -> tuple[Tensor, str]:
    """Return normalized images [N, 3, S, S] for the comparison, and a description of them."""
    try:
        with closing(trained.open_images(fetches=is_required)) as loader:
            batches = loader.eval_batches(_choose_images(loader.examples))
            images = torch.cat([loader.normalize(raw) for raw in batches])
    except NotReadyError:
        if is_required:
            raise
        generated = map(trained.described_network.transform, _generate_images())
        return torch.stack(list(generated)), f"{COMPARED_IMAGES} random images"
    return images, f"{len(images)} validation images"


def find_problems(network: Network, to: str, options: ExportOptions) -> Iterator[Problem]:
    """Yield the reasons why a network cannot be exported as `to` with these options."""
    preprocesses = options.preprocesses
    if preprocesses and not FORMATS[to].use_preprocessed:
        able = tuple(f"--to {name}" for name, each in FORMATS.items() if each.use_preprocessed)
        yield Problem("--with-preprocessing", None, f"cannot be part of {to}", able)
    if options.dtype == "int8" and to != "onnx":
        yield Problem("--dtype", "int8", f"is not possible with {to}", "--to onnx")
    if preprocesses and options.lose is not None:
        clause = "cannot be used with --dtype or --lose, which compare normalized images"
        yield Problem("--with-preprocessing", None, clause, kind=Kind.UNUSED)
    about = network.about
    graphs = tuple(f"--to {name}" for name in _GRAPHS)
    library = backbones.get_library(about.architecture)
    fix = ("--to safetensors", *graphs)
    if {to, library} == {"timm", "torchvision"} and ":" in about.architecture:
        clause = f"has no network like {about.architecture}"
        yield Problem("--to", to, clause, (f"--to {library}", *graphs))
    if about.arguments and about.architecture in NETWORKS and not FORMATS[to].supports_any:
        clause = "has no ResNet of this stem, width or number of input channels"
        yield Problem("--to", to, clause, fix)
    if about.method_settings and not FORMATS[to].supports_any:
        methods = " and ".join(about.method_settings)
        clause = f"does not support {methods}, which is part of this network"
        yield Problem("--to", to, clause, fix)

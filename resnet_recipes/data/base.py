"""The interface between the trainer and the data backends."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import torch
from torch import Tensor

from resnet_recipes.base.errors import Change, Fix, Note, NotReadyError, Problem, Value
from resnet_recipes.base.limits import Bounds, OneOf, Span
from resnet_recipes.base.paths import make_missing_data_problem
from resnet_recipes.base.reading import make_read_error, read_json
from resnet_recipes.base.section import Section
from resnet_recipes.base.suggestions.values import add_likely_value
from resnet_recipes.data.root import find_address_problems

#: Values of `sampling` by name: 0 is natural class frequencies, 1 is equal frequencies.
CLASS_BALANCES = {"natural": 0.0, "sqrt": 0.5, "balanced": 1.0}
BACKENDS = ("auto", "torchvision", "ffcv", "synthetic")

#: ImageNet statistics in 0..255 units: red, green, blue.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)

#: Mean and standard deviation of a color channel, in levels from 0 to 255; libraries divide both
#: by 255.
_Level = Annotated[float, Bounds(least=0, most=255)]
_Deviation = Annotated[float, Bounds(least=2, most=255)]
Mean = tuple[_Level, _Level, _Level]
Deviation = tuple[_Deviation, _Deviation, _Deviation]

EvalInterpolation = Annotated[str, OneOf("bilinear", "bicubic")]  # filter that resizes images
ImageFit = Annotated[str, OneOf("crop", "pad", "squash")]  # how an image becomes square

_MAX_CROP_SIZE = 1024  # pixels

#: Height and width of a crop, in pixels.
CropSize = Annotated[int, Bounds(least=8, most=_MAX_CROP_SIZE)]


@dataclass
class DataConfig(Section):
    """The `data` section: images, crops and loader."""

    _prefix = "data."

    # torchvision (image files) | ffcv (.beton files) | auto | synthetic. `auto` is ffcv if
    # `data.root` has .beton files, else torchvision. `synthetic` generates images, to measure
    # speed.
    backend: Annotated[str, OneOf(*BACKENDS)] = "auto"
    # folder of images or .beton files, CSV table, or URL. A folder contains class folders, train/
    # and val/, or train.beton and val.beton. A URL (s3://, gs://, https://) points to .beton files
    # or a table.
    root: str = ""
    # folder for copies of remote images; empty: a local disk with space
    cache: str = ""
    # fraction of each class set aside for validation; for data without val/
    val_share: Annotated[float, Bounds(least=0, below=1, fix=Value("0.1"))] = 0.0
    # "1/5": validate on the first of five parts of the training images
    fold: str = ""
    # fraction of each class's training images to use, at least one image. A larger fraction
    # includes all images of a smaller fraction.
    share: Annotated[float, Bounds(above=0, most=1, fix=Value("0.5"))] = 1.0
    # seed of crops and flips; auto: `seed`. To reuse soft labels, set the seed of their file.
    seed: Annotated[int | str, Bounds(least=0, most=2**32 - 1, keyword="auto")] = "auto"
    # seed for val_share, fold and share. Runs with different values of `seed` use the same
    # images.
    val_seed: int = 0
    # true: every folder with images is a class | false: folders in train/. With null, the classes
    # are the folders in train/, but folders that look like splits are rejected.
    nested_classes: bool | None = None
    train_size: CropSize = 176  # training crop size, pixels
    # shorter side before the evaluation crop, pixels; at least data.eval_size
    eval_resize: CropSize = 232
    eval_size: CropSize = 224  # evaluation crop size, pixels
    # area of a training crop, as a fraction of the image
    crop_scale: Annotated[tuple[float, float], Span(most=1)] = (0.08, 1.0)
    # width / height of a training crop
    crop_ratio: Annotated[tuple[float, float], Span(most=100)] = (0.75, 4 / 3)
    # how crops are sampled: torchvision | tensorflow (distorted bounding box)
    crop_rule: Annotated[str, OneOf("torchvision", "tensorflow")] = "torchvision"
    # filter for training crops: bilinear | bicubic | random (either, for each image). Without the
    # native decoder, bicubic pixels depend on the Pillow version.
    interpolation: Annotated[str, OneOf("bilinear", "bicubic", "random")] = "bilinear"
    # filter for evaluation images: bilinear | bicubic
    eval_interpolation: EvalInterpolation = "bilinear"
    # rule for evaluation images that are not square: crop | pad | squash. `crop` resizes the
    # shorter side to `data.eval_resize` and cuts off the ends. `pad` resizes the longer side and
    # fills the rest with the mean color. `squash` resizes height and width.
    fit: ImageFit = "crop"
    # mean level of red, green and blue. The network receives (level - mean) / std. If a run
    # starts from weights, values that you do not set come from the weights.
    mean: Mean = MEAN
    # standard deviation of red, green and blue, in the units of data.mean
    std: Deviation = STD
    flip: bool = True  # flip half of the training images horizontally
    # decode training JPEGs at 1/2, 1/4 or 1/8 of their size if the crop stays large enough
    reduced_decode: bool = True
    # longer side in pixels of images kept in memory; 0: off. Images are decoded once, shrunk, and
    # kept for cropping. `auto` is 2 times the largest training crop if all images fit, else 1.5
    # times, else off.
    memory_pixels: Annotated[
        int | str,
        Bounds(least=0, most=2048, keyword="auto", text="a size in pixels from 0 to 2,048"),
    ] = 0
    # loader processes or threads per rank; auto: cores / ranks, at most 16. With 0, images are
    # decoded in the training process.
    workers: Annotated[int | str, Bounds(least=0, most=256, keyword="auto")] = "auto"
    prefetch: Annotated[int, Bounds(least=1, most=64)] = 2  # batches to prepare ahead
    # rule for damaged training images: error | skip. `skip` replaces a damaged image with the
    # next readable image. Damaged validation images are errors.
    on_bad_image: Annotated[str, OneOf("error", "skip")] = "error"
    # copies of each image in a row, each with its own crop. An epoch has the same number of steps
    # but fewer distinct images.
    repeats: Annotated[int, Bounds(least=1, most=64)] = 1
    # sampling frequency of classes: natural | sqrt | balanced, or a fraction from 0 to 1
    sampling: float | str = "natural"
    # order of training images: random | quasi_random. `quasi_random` reads larger chunks and
    # needs .beton files.
    order: Annotated[str, OneOf("random", "quasi_random")] = "random"

    def resize_for(self, size: int) -> int:
        """Return the shorter side for another crop size, at the same ratio."""
        return round(size * self.eval_resize / self.eval_size)

    @property
    def has_images(self) -> bool:
        """Whether the images have a location, or are synthetic."""
        return bool(self.root) or self.backend == "synthetic"

    @property
    def sets_aside(self) -> bool:
        """Whether validation images are taken from the training images."""
        return bool(self.val_share or self.fold)

    @property
    def class_balance(self) -> float:
        """The value of `sampling` between natural (0) and equal (1) class frequencies."""
        return CLASS_BALANCES[self.sampling] if isinstance(self.sampling, str) else self.sampling

    def problems(self) -> Iterator[Problem]:
        limits = list(super().problems())
        yield from limits
        if not self.has_images:
            yield make_missing_data_problem()._replace(key="root")
        yield from find_address_problems(self.root)
        wrong = {problem.key for problem in limits}
        if self.eval_resize < self.eval_size and not wrong & {"eval_resize", "eval_size"}:
            rule = f"must be at least data.eval_size ({self.eval_size}): the crop is cut from it"
            resize = min(self.eval_size * 8 // 7, _MAX_CROP_SIZE)  # 256 for 224, the usual ratio
            yield Problem("eval_resize", self.eval_resize, rule, Value(resize))
        if 0 < max(self.mean) <= 1:
            rule = "must be levels from 0 to 255, not fractions of 255"
            levels = ",".join(f"{255 * level:g}" for level in self.mean)
            yield Problem("mean", self.mean, rule, Value(f"[{levels}]"))
        match = re.fullmatch(r"(\d{1,3})/(\d{1,3})", self.fold)
        if self.fold and not (match and 1 <= int(match[1]) <= int(match[2]) > 1):
            rule = "must be PART/PARTS, with PART from 1 to PARTS, and at least two parts"
            yield Problem("fold", self.fold, rule, Value("1/5"))
        if self.val_share and self.fold:
            clause = "cannot be used with data.fold, which sets images aside itself"
            yield Problem("val_share", self.val_share, clause, Value("0"))
        yield from self._find_sampling_problems()

    def _find_sampling_problems(self) -> Iterator[Problem]:
        setting = self.sampling
        if not (setting in CLASS_BALANCES if isinstance(setting, str) else 0 <= setting <= 1):
            choices = (*CLASS_BALANCES, "a fraction from 0 (natural) to 1 (balanced)")
            problem = Problem("sampling", setting, "", valid=choices)
            yield add_likely_value(problem, type(self), "sampling", setting)
        elif self.class_balance:
            for key, plain in {"repeats": 1, "order": "random"}.items():
                if getattr(self, key) != plain:
                    clause = f"cannot be used with data.{key}={getattr(self, key)}"
                    yield Problem("sampling", self.sampling, clause, Change(f"data.{key}={plain}"))
            if self.backend == "synthetic":
                clause = "cannot be used with synthetic images"
                yield Problem("sampling", self.sampling, clause, Value("natural"))


#: Images per sample; the error of their mean is about 5%.
SAMPLE_SIZE = 48

#: The facts that a run folder contains, with their types.
_STORED_FACTS = {
    "backend": str,
    "train_examples": int,
    "eval_examples": int,
    "classes": list,
    "train_digest": str,
    "eval_digest": str,
    "class_images": list,
}


@dataclass(frozen=True)
class DataFacts:
    """The dataset at `data.root`, as found before the run starts.

    The launcher writes it to a file once, and ranks check it when they open the images.
    """

    backend: str  # the backend to use; never "auto"
    root: Path
    train_examples: int
    eval_examples: int
    classes: tuple[str, ...]  # class names in label order
    notes: tuple[Note, ...] = ()
    train_digest: str = ""  # SHA-256 of the names and sizes of the training images
    eval_digest: str = ""
    class_images: tuple[int, ...] = ()  # training images of each class; empty if unknown
    details: tuple[str, ...] = ()  # how images are found and decoded, one sentence each
    sample: tuple[str, ...] = ()  # paths of some training images, unless they are in .beton files

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps({key: asdict(self)[key] for key in _STORED_FACTS}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path, root: str, fix: Fix = ()) -> Self:
        """Read the file of a run whose images are in `root`.

        Raises NotReadyError with `fix` if the file is not valid.
        """
        try:
            values = read_json(path)
            if {key: type(value) for key, value in values.items()} != _STORED_FACTS:
                raise ValueError("missing or unknown fields")
            if values["backend"] not in BACKENDS[1:]:
                raise ValueError("an unknown backend")
            if {*map(type, values["classes"])} - {str} or {*map(type, values["class_images"])} - {
                int
            }:
                raise ValueError("class names that are not text, or counts that are not integers")
        except (NotReadyError, ValueError) as error:
            damage = error if isinstance(error, NotReadyError) else make_read_error(path, error)
            raise NotReadyError(problem._replace(fix=fix) for problem in damage.problems) from None
        lists = {name: tuple(values[name]) for name in ("classes", "class_images")}
        return cls(root=Path(root), **values | lists)

    @property
    def digest(self) -> str:
        """A digest of the names and sizes of the images in both splits."""
        return f"{self.train_digest}-{self.eval_digest}"

    def describe_differences(self, other: Self) -> str:
        """Return a description of how `other` differs; "" if it describes the same images."""
        parts = {
            "train_digest": "training images",
            "eval_digest": "validation images",
            "classes": "classes",
            "backend": "backend",
        }
        wrong = [name for key, name in parts.items() if getattr(self, key) != getattr(other, key)]
        return " and ".join(filter(None, (", ".join(wrong[:-1]), *wrong[-1:])))

    @property
    def augments_images(self) -> bool:
        """Whether this backend decodes images one by one and so can augment each."""
        return self.backend in ("torchvision", "ffcv")


class SoftLabels(NamedTuple):
    """A file with the outputs of a teacher, and the softmax temperature."""

    path: Path
    checksum: str  # digest of the outputs that were checked
    epochs: int  # number of stored epochs; then the first is used again
    classes: int  # K
    temperature: float = 1.0


@dataclass(frozen=True)
class Batching:
    """A rank's part of each epoch."""

    rank: int
    world_size: int
    global_size: int  # examples of one optimizer step, over all ranks
    eval_size: int  # examples of one evaluation batch on this rank
    seed: int
    # training crop size by epoch, the last value repeated; empty: train_size
    train_sizes: tuple[int, ...] = ()

    groups: int = 1  # micro-batches per optimizer step, over all ranks; copies go to different ones
    soft_labels: SoftLabels | None = None  # a teacher's output for every image

    @property
    def rank_size(self) -> int:
        """Examples of one optimizer step on this rank."""
        return self.global_size // self.world_size


class RawBatch(NamedTuple):
    """One batch in the form that every backend delivers, before conversion to floating point."""

    # uint8 [N, 3, H, W], RGB, channels_last; pinned for a GPU; synthetic images are on the GPU
    pixels: Tensor
    labels: Tensor  # int64 [N]
    soft_labels: Tensor | None = None  # float32 [N, K], a teacher's stored probabilities, if any


def normalize(pixels: Tensor, mean: Mean = MEAN, std: Deviation = STD) -> Tensor:
    """Return (pixels - mean) / std, float32 [N, 3, H, W] in channels_last.

    Takes one pass over uint8 input of any strides.
    """
    shift, scale = compute_shift_and_scale(pixels.device, mean, std).view(2, 1, 3, 1, 1)
    return torch.addcmul(shift, pixels, scale).contiguous(memory_format=torch.channels_last)


class Normalization(NamedTuple):
    """The mean and standard deviation that images are normalized with."""

    mean: Mean
    std: Deviation


def relate_normalizations(target: Normalization, current: Normalization) -> Normalization:
    """Return the arguments of `normalize` that convert images from `current` to `target`."""
    means, deviations = torch.tensor([*zip(target, current, strict=True)], dtype=torch.float64)
    mean = (means[0] - means[1]) / deviations[1]
    return Normalization(tuple(mean.tolist()), tuple((deviations[0] / deviations[1]).tolist()))


@lru_cache
def compute_shift_and_scale(device: torch.device, mean: Mean, std: Deviation) -> Tensor:
    """Return -mean / std and 1 / std, rounded once, from float64; [2, 3]."""
    means, deviations = torch.tensor((mean, std), dtype=torch.float64)
    return torch.stack([-means / deviations, 1 / deviations]).float().to(device)

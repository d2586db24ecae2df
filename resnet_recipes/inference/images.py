"""Load images from any folder, to evaluate a network or to predict classes."""

import glob
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.paths import find_similar_path, parse_path
from resnet_recipes.base.text import join_first
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.beton.samples import Samples, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.layout import find_parts, list_split
from resnet_recipes.data.files.listing import Listing, iterate_images
from resnet_recipes.data.imagenet import get_wordnet_ids
from resnet_recipes.data.images import build_eval_pipeline
from resnet_recipes.data.images.decode import SUFFIXES, BadImageError, Pixels, read_pixels
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.data.root import find_folder_with_splits, find_root_problem, make_error

#: An image as an argument of the Python API: a path, the bytes of a file, or pixels.
OneImage = str | bytes | os.PathLike[str] | Image.Image | np.ndarray | Tensor

_FORMS_HINT = Hint("paths, folders, bytes, Pillow images, and uint8 arrays or tensors are accepted")

#: Advice about images whose classes the network does not have.
_CLASSES_HINT = Hint(
    "resnet-train finetune trains a network for other classes; class folders named after ImageNet "
    "classes, such as n01440764, are matched to those classes"
)

_LAYOUT_HINT = Hint("the layout is FOLDER/CLASS/image.jpg or FOLDER/val/CLASS/image.jpg")

_MAX_PROBLEMS = 3  # shown for images in memory, which may be thousands

_MAX_WITHOUT_WORKERS = 64  # images; decoding so few takes less time than starting processes


def open_labeled(
    config: DataConfig, classes: Sequence[str], num_classes: int, batching: Batching
) -> EvalLoader:
    """Open the labeled images at `config.root`: the validation split, or all without splits.

    Class folders are matched by name and may be some of the network's classes. Without names
    (`classes` is empty), their number must match, or they must be some of the 1,000 ImageNet
    classes. Raises NotReadyError if there are no images or their classes do not match, OSError if
    a folder cannot be read.
    """
    root = Path(config.root)
    root = root.parent if root.name == "val.beton" else root
    if (root / "val.beton").is_file():
        source: Samples | Files = _open_samples(root / "val.beton", classes, num_classes)
    else:
        source = _open_files(config, root, classes, num_classes)
    return EvalLoader(config, batching, build_eval_pipeline(source, config, batching))


def _open_samples(path: Path, classes: Sequence[str], num_classes: int) -> Samples:
    samples = open_samples(path)
    beton = samples.beton
    highest = samples.labels.max()
    if beton.sidecar and classes and beton.classes != tuple(classes):
        clause = "has different classes from the network, or another order"
        raise make_error(path, clause, _CLASSES_HINT)
    if highest >= num_classes:
        clause = f"has labels up to {highest}; the network has {num_classes} classes"
        raise make_error(path, clause, _CLASSES_HINT)
    return samples


def _open_files(config: DataConfig, root: Path, classes: Sequence[str], num_classes: int) -> Files:
    listing = list_files(config, root)
    if not len(listing):
        if root.name in classes:
            raise make_error(root, "is the folder of one class", Value(root.parent))
        raise make_error(root, "has no images in class folders", _LAYOUT_HINT)
    files = Files(listing, config.root)
    files.labels[:] = _map_labels(root, listing.classes, classes, num_classes)[files.labels]
    return files


def list_files(config: DataConfig, root: Path) -> Listing:
    """List the labeled images in a folder or a table, as `open_labeled` does.

    Raises NotReadyError if they cannot be listed.
    """
    if root.is_file():
        NotReadyError.raise_if_any([find_root_problem(str(root))])
    splits = find_parts(root)
    if config.sets_aside or "val" in splits:
        return list_split(config, "val")
    if "" not in splits:
        raise make_error(root, "has training images only", Value(splits["train"].path))
    return splits[""].listing(config)


def _map_labels(
    root: Path, folders: Sequence[str], classes: Sequence[str], num_classes: int
) -> np.ndarray:
    if not classes and len(folders) == num_classes:
        return np.arange(num_classes)
    is_imagenet = num_classes == len(get_wordnet_ids())
    if not classes and is_imagenet and {*folders} <= {*get_wordnet_ids()}:
        classes = get_wordnet_ids()
    if not classes:
        which = "ImageNet" if is_imagenet else "unnamed"
        clause = f"has {len(folders)} classes; the network has {num_classes:,} {which} classes"
        raise make_error(root, clause, _CLASSES_HINT)
    if unknown := sorted({*folders} - {*classes}):
        meant = find_folder_with_splits(root)
        fix = Value(meant) if meant else Hint(f"its classes are {join_first(classes)}")
        clause = f"has classes that the network does not have: {join_first(unknown)}"
        raise make_error(root, clause, fix)
    labels = {name: label for label, name in enumerate(classes)}
    return np.array([labels[name] for name in folders], np.int64)


def collect_images(images: object) -> list[Path | Pixels]:
    """Return the paths and pixels of one or several images.

    Raises RecipeError if a path is not a local path, or an image in memory cannot be decoded.
    """
    is_one = isinstance(images, str | bytes | os.PathLike | Image.Image)
    is_one |= isinstance(images, np.ndarray | Tensor) and images.ndim in (2, 3)
    several = images if isinstance(images, Iterable) and not is_one else [images]
    collected: list[Path | Pixels] = []
    problems: list[Problem] = []
    for number, image in enumerate(several):
        if isinstance(image, str | os.PathLike):
            collected.append(parse_path("images", os.fspath(image)))
            continue
        try:
            collected.append(read_pixels(image))
        except BadImageError as error:
            problems.append(Problem(f"images[{number}]", None, str(error), _FORMS_HINT))
    RecipeError.raise_if_any(problems[:_MAX_PROBLEMS])
    return collected


def find_images(sources: Sequence[Path | Pixels]) -> list[str | Pixels]:
    """Return the absolute paths of images, and of all images in folders, in the order of `sources`.

    The images of one folder, and the matches of one pattern, are sorted by name. A path that does
    not exist may be a pattern, such as "photos/**/*.jpg". Images in memory keep their positions.
    Raises NotReadyError if a path does not exist, a pattern cannot be searched, or a folder cannot
    be read or has no images.
    """
    images: list[str | Pixels] = []
    errors = ErrorCollector()
    for source in sources:
        if isinstance(source, Pixels):
            images.append(source)
            continue
        source = source.absolute()
        matches = [source] if source.exists() else _list_matches(source)
        for path in matches:
            with errors:
                images += _list_folder(path) if path.is_dir() else [str(path)]
        if not matches:
            is_pattern = glob.has_magic(str(source))
            clause = Statement("no file matches this pattern") if is_pattern else ""
            if source.name == "-":
                clause = "images are read from files, not from a pipe"
            kind = Kind.WRONG if is_pattern else Kind.ABSENT
            near = find_similar_path(source, SUFFIXES)
            fix = shlex.quote(near) if near else ""
            with errors:
                raise NotReadyError.of(str(source), None, clause, fix, kind)
    errors.raise_if_any()
    return images


def _list_folder(folder: Path) -> list[str]:
    """Return the paths of the images in a folder, sorted; at least one."""
    try:
        names = sorted(iterate_images(folder))
    except OSError as error:
        raise NotReadyError.at(folder, f"cannot be read: {error.strerror}") from None
    if not names:
        raise NotReadyError.at(folder, "has no images", Hint("pass images, or folders of images"))
    return [str(folder / name) for name in names]


def _list_matches(pattern: Path) -> list[Path]:
    """Return the paths that match a pattern, sorted. Hidden files must match explicitly.

    The ** of glob.glob follows links to folders, and does not terminate in a folder with two links
    to itself. Raises NotReadyError if the pattern cannot be searched.
    """
    parts = pattern.parent.parts if pattern.name == "**" else pattern.parts
    first = next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    top = Path(*parts[:first])
    rest = "/".join(parts[first:])
    if not rest:
        return [top] if top.exists() else []
    try:
        matches = sorted(top.glob(rest))
    except (ValueError, RecursionError) as error:
        raise NotReadyError.at(pattern, f"cannot be searched: {error}") from None
    shows_hidden = "/." in f"/{rest}"
    return [path for path in matches if shows_hidden or "/." not in f"/{path.relative_to(top)}"]


class UnlabeledImages(EvalLoader):
    """Images in order, cropped as in evaluation, with labels 0, 1, 2 ....

    An unreadable image is replaced by a black image.
    """

    def __init__(self, images: Sequence[str | Pixels], config: DataConfig, batch: int):
        """Load images from absolute paths, or from memory."""
        batching = Batching(0, 1, batch, batch, 0)
        self.names = [
            image if isinstance(image, str) else f"image {number}"
            for number, image in enumerate(images)
        ]
        if len(images) <= _MAX_WITHOUT_WORKERS:
            config = replace(config, workers=0)
        self._files = _FilesOrBlack.from_paths(self.names)
        self._files.labels[:] = np.arange(len(images))
        self._files.in_memory = {
            number: image for number, image in enumerate(images) if isinstance(image, Pixels)
        }
        super().__init__(config, batching, build_eval_pipeline(self._files, config, batching))

    def find_error(self, index: int) -> str:
        """Return why an image could not be read; "" if it was read."""
        if index in self._files.in_memory:
            return ""
        try:
            Files.read(self._files, index).pixels()
        except BadImageError as error:
            return str(error)
        return ""


class _FilesOrBlack(Files):
    """Files and images in memory; an unreadable file is replaced by a black image."""

    in_memory: Mapping[int, Pixels]

    def read(self, index: int) -> Pixels:
        if index in self.in_memory:
            return self.in_memory[index]
        try:
            return Pixels(super().read(index).pixels())
        except BadImageError:
            return Pixels(np.zeros((1, 1, 3), np.uint8))

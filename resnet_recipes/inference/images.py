"""Images from any folder, to evaluate a network or to predict their classes."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from resnet_recipes.base.errors import Hint, NotReadyError, Problem, RecipeError, Value
from resnet_recipes.base.paths import typed_path
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.beton.samples import Samples, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.doubtful import some
from resnet_recipes.data.files.layout import listing_of, parts
from resnet_recipes.data.files.listing import Listing, image_names
from resnet_recipes.data.imagenet import wordnet_ids
from resnet_recipes.data.images import eval_pipeline
from resnet_recipes.data.images.decode import BadImageError, Pixels, pixels_of
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.data.root import root_problem, unreadable, unusable

#: An image as a program names or holds it.
OneImage = str | bytes | os.PathLike[str] | Image.Image | np.ndarray

_IMAGES = Hint("paths, folders, images of Pillow, or arrays of uint8 [height, width, 3]")

_SHOWN = 3  # problems of images in memory, which may be thousands

_FEW = 64  # decoding so few images takes less time than starting worker processes


def open_labelled(
    config: DataConfig, classes: Sequence[str], num_classes: int, share: Share
) -> EvalLoader:
    """Open the labelled images at `config.root`: those for validation, or all if it has no splits.

    Class folders are matched by name, so some of the network's classes are enough. Without names
    (`classes` is empty) their number must match, or they must be some of ImageNet's 1,000. Raises
    NotReadyError.
    """
    root = Path(config.root)
    root = root.parent if root.name == "val.beton" else root
    try:
        if (root / "val.beton").is_file():
            source: Samples | Files = _samples(root / "val.beton", classes, num_classes)
        else:
            source = _files(config, root, classes, num_classes)
    except OSError as error:
        if error.filename is None:  # of memory, rather than of an image
            raise
        raise NotReadyError([root_problem(str(root)) or unreadable(error)]) from None
    return EvalLoader(config, share, eval_pipeline(source, config, share))


def _samples(path: Path, classes: Sequence[str], num_classes: int) -> Samples:
    samples = open_samples(path)
    beton, most = samples.beton, samples.labels.max()
    if beton.sidecar and classes and beton.classes != tuple(classes):
        raise unusable(path, "has different classes from the network, or another order")
    if most >= num_classes:
        raise unusable(path, f"has labels up to {most}; the network has {num_classes} classes")
    return samples


def _files(config: DataConfig, root: Path, classes: Sequence[str], num_classes: int) -> Files:
    listing = _listing(config, root)
    if not len(listing):
        raise unusable(root, "has no images in class folders")
    files = Files(listing, config.root)
    files.labels[:] = _places(root, listing.classes, classes, num_classes)[files.labels]
    return files


def _listing(config: DataConfig, root: Path) -> Listing:
    there = parts(root)
    if config.val_share or "val" in there:
        return listing_of(config, "val")
    if "" not in there:
        fix = Value(there["train"].place)
        raise unusable(root, "has training images only", fix)
    return there[""].listing(config)


def _places(
    root: Path, found: Sequence[str], classes: Sequence[str], num_classes: int
) -> np.ndarray:
    """Return the network's label of each class folder, int64."""
    if not classes and len(found) == num_classes:
        return np.arange(num_classes)
    if not classes and num_classes == len(wordnet_ids()) and {*found} <= {*wordnet_ids()}:
        classes = wordnet_ids()
    if not classes:
        rule = f"has {len(found)} classes; the network has {num_classes} classes, unnamed"
        raise unusable(root, rule)
    if strange := sorted({*found} - {*classes}):
        known = f"it knows {', '.join(classes[:5])}{' ...' if len(classes) > 5 else ''}"
        raise unusable(
            root, f"has classes that the network does not know: {some(strange)}", Hint(known)
        )
    places = {name: label for label, name in enumerate(classes)}
    return np.array([places[name] for name in found], np.int64)


def images_of(given: object) -> list[Path | Pixels]:
    """Return the images that a program names or holds. Raises RecipeError."""
    is_one = isinstance(given, str | bytes | os.PathLike | Image.Image)
    is_one |= isinstance(given, np.ndarray) and given.ndim in (2, 3)
    several = given if isinstance(given, Iterable) and not is_one else [given]
    found: list[Path | Pixels] = []
    problems: list[Problem] = []
    for number, image in enumerate(several):
        if isinstance(image, str | os.PathLike):
            found.append(typed_path("images", os.fspath(image)))
            continue
        try:
            found.append(pixels_of(image))
        except BadImageError as error:
            problems.append(Problem(f"images[{number}]", None, str(error), _IMAGES))
    RecipeError.refuse(problems[:_SHOWN])
    return found


def find_images(places: Sequence[Path | Pixels]) -> Iterator[str | Pixels]:
    """Yield the absolute paths of images, and of all images in folders, sorted by name.

    A place that does not exist may be a pattern, like "photos/**/*.jpg"; images in memory are where
    they were. Raises NotReadyError.
    """
    paths: list[Path | Pixels] = []
    missing: list[Problem] = []
    for place in places:
        if isinstance(place, Pixels):
            paths.append(place)
            continue
        place = place.absolute()
        there = [place] if place.exists() else _matching(place)
        paths += there
        if not there:
            is_pattern = glob.has_magic(str(place))
            rule = "no file matches this" if is_pattern else "no such file or folder"
            missing.append(Problem(str(place), None, rule))
    NotReadyError.refuse(missing)
    for path in paths:
        if isinstance(path, Pixels) or not path.is_dir():
            yield path if isinstance(path, Pixels) else str(path)
            continue
        try:
            found = sorted(image_names(path))
        except OSError as error:
            raise NotReadyError.at(path, f"cannot be read: {error.strerror}") from None
        if not found:
            raise NotReadyError.at(path, "has no images")
        yield from (str(path / name) for name in found)


def _matching(pattern: Path) -> list[Path]:
    """Return what matches a pattern, sorted; hidden names only if it has some itself.

    Not glob.glob: its ** follows links to folders, and never ends in a folder with two links to
    itself. Raises NotReadyError.
    """
    parts = pattern.parent.parts if pattern.name == "**" else pattern.parts
    first = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    top, rest = Path(*parts[:first]), "/".join(parts[first:])
    if not rest:
        return [top] if top.exists() else []
    try:
        found = sorted(top.glob(rest))
    except (ValueError, RecursionError) as error:
        raise NotReadyError.at(pattern, f"cannot be searched: {error}") from None
    shows_hidden = "/." in f"/{rest}"
    return [path for path in found if shows_hidden or "/." not in f"/{path.relative_to(top)}"]


class Unlabelled(EvalLoader):
    """Images in order, cropped as in evaluation, with labels 0, 1, 2 ....

    An unreadable image is black.
    """

    def __init__(self, images: Sequence[str | Pixels], config: DataConfig, batch: int):
        """Take absolute paths of files, and images in memory."""
        share = Share(0, 1, batch, batch, 0)
        self.names = [
            image if isinstance(image, str) else f"image {number}"
            for number, image in enumerate(images)
        ]
        if len(images) <= _FEW:
            config = replace(config, workers=0)
        self._files = _Blackened.named(self.names)
        self._files.labels[:] = np.arange(len(images))
        self._files.in_memory = {
            number: image for number, image in enumerate(images) if isinstance(image, Pixels)
        }
        super().__init__(config, share, eval_pipeline(self._files, config, share))

    def reading_error(self, index: int) -> str:
        """Return why a black image could not be read, or "" if it really is black."""
        if index in self._files.in_memory:
            return ""
        try:
            Files.read(self._files, index).whole()
        except BadImageError as error:
            return str(error)
        return ""


class _Blackened(Files):
    """Files of which those that cannot be read are black, and images in memory."""

    in_memory: Mapping[int, Pixels]

    def read(self, index: int) -> Pixels:
        if index in self.in_memory:
            return self.in_memory[index]
        try:
            return Pixels(super().read(index).whole())
        except BadImageError:
            return Pixels(np.zeros((1, 1, 3), np.uint8))

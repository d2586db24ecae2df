"""Encode the images of a conversion for a .beton file."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
from PIL import Image

from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.limits import BelowOne, Bounds, OneOf, ZeroToOne
from resnet_recipes.base.section import Section
from resnet_recipes.data.beton import JPEG, RAW
from resnet_recipes.data.beton.samples import open_samples
from resnet_recipes.data.crop import sample_uniforms
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import BadImageError, ChangedError, Picture, Pixels
from resnet_recipes.data.images.jpeg import ends_early, has_usual_chroma, read_frame_size
from resnet_recipes.data.images.python import LabeledImages
from resnet_recipes.data.images.shrink import compute_shrunk_size, shrink_by_area

WRITE_MODES = ("raw", "proportion", "jpg")
_RESTART = 4  # units of 16 pixels between restart markers
_MAX_DIMENSION = 65_500  # pixels: limit of JPEG encoders and of 16 bits in a .beton file


@dataclass
class ConvertOptions(Section):
    """How images are written.

    Sizes and formats default to those of the published recipes (mosaicml/composer 0.7.1, FFCV).
    """

    # format: raw | jpg | proportion (JPEG with compress_probability, else raw)
    write_mode: Annotated[str, OneOf(*WRITE_MODES)] = "proportion"
    # pixels, longer side; larger images are shrunk by area averaging; None: no limit
    max_resolution: Annotated[int, Bounds(least=16, most=8192)] | None = 500
    compress_probability: ZeroToOne = 0.5  # probability of JPEG with write_mode=proportion
    jpeg_quality: Annotated[int, Bounds(least=1, most=100)] = 90
    # 2: also write train.half.beton, for crops of at least twice the output size
    levels: Annotated[int, OneOf(1, 2)] = 1
    shuffle: bool = True  # store in random order, so that neighbors in the file differ in class
    seed: int = 0  # seed of the order and of the choice between JPEG and raw
    on_bad_image: Annotated[str, OneOf("error", "skip")] = "error"  # error | skip
    val_share: BelowOne = 0.0  # fraction of each class for val.beton, as data.val_share
    val_seed: int = 0
    nested_classes: bool | None = None
    workers: Annotated[int, Bounds(least=0, most=256)] = 0  # processes; 0: one per core

    @property
    def processes(self) -> int:
        """The number of encoding processes."""
        return self.workers or count_cores()


class EncodedImage(NamedTuple):
    """One image ready to be written."""

    mode: int  # JPEG or RAW
    height: int
    width: int
    data: bytes


def encode(image: Pixels, index: int, options: ConvertOptions) -> EncodedImage:
    """Encode one image. Raises BadImageError if it cannot be decoded, or is too large.

    In `jpg` mode, a JPEG with usual chroma subsampling within the size limit is kept byte for byte.
    With two levels it is encoded again with restart markers every 64 pixels, so that the native
    decoder can skip the intervals outside a crop. EXIF orientation is ignored, as in training.
    """
    longest = options.max_resolution or _MAX_DIMENSION
    is_kept = options.write_mode == "jpg" and options.levels == 1 and isinstance(image, Picture)
    if is_kept and max(image.height, image.width) <= longest and _is_readable_by_ffcv(image.data):
        image.check()
        return EncodedImage(JPEG, image.height, image.width, image.data)
    pixels = image.shrink(*compute_shrunk_size(image.height, image.width, options.max_resolution))
    height, width, _ = pixels.shape
    if max(height, width) > _MAX_DIMENSION:
        raise BadImageError(
            f"is {max(height, width):,} pixels long; .beton files allow at most {_MAX_DIMENSION:,}"
        )
    compress = options.write_mode == "jpg"
    if options.write_mode == "proportion":
        uniform = sample_uniforms(options.seed, 0, np.array([index]), 1).item()
        compress = uniform < options.compress_probability
    if not compress:
        return EncodedImage(RAW, height, width, pixels.tobytes())
    buffer = io.BytesIO()
    restart = _RESTART if options.levels == 2 else 0
    picture = Image.fromarray(pixels)
    picture.save(buffer, "JPEG", quality=options.jpeg_quality, restart_marker_blocks=restart)
    return EncodedImage(JPEG, height, width, buffer.getvalue())


def _is_readable_by_ffcv(data: bytes) -> bool:
    """Return whether FFCV can read a JPEG.

    Bytes after its end are not allowed: many phones append a second image.
    """
    channels = read_frame_size(np.frombuffer(data, np.uint8)).channels
    return channels in (1, 3) and has_usual_chroma(data) and not ends_early(data)


@dataclass(frozen=True)
class OriginalImages:
    """Labeled images in a fixed order; small enough to send to another process."""

    images: LabeledImages
    path: str  # their source: a folder or a file
    classes: tuple[str, ...]
    # digest that changes if images are added, removed, renamed, or replaced by images of another
    # size
    fingerprint: str
    ignored_files: tuple[str, ...] = ()  # other files, which do not belong to a split
    groups: np.ndarray | None = None  # int64 [N], images to read together; None: no groups

    @classmethod
    def from_listing(cls, listing: Listing, path: Path) -> Self:
        """Return image files, sorted by class and name as in ImageFolder.

        `path` is the folder or table where they were found.
        """
        return cls(Files(listing), os.path.realpath(path), listing.classes, listing.digest)

    @classmethod
    def from_beton(cls, path: Path) -> Self:
        """Return the samples of a .beton file, in stored order.

        Raises NotReadyError if the file cannot be read or breaks the format.
        """
        samples = open_samples(path)
        return cls(samples, os.path.realpath(path), samples.beton.classes, samples.beton.structure)

    def encode(
        self, index: int, options: ConvertOptions, has_half: bool = False
    ) -> list[EncodedImage] | str:
        """Encode one image, and with `has_half` its half-size level; or return a read error."""
        try:
            image = self.images.read(index)
            if not has_half:
                return [encode(image, index, options)]
            size = compute_shrunk_size(image.height, image.width, options.max_resolution)
            full = image.shrink(*size)
            half = shrink_by_area(full, -(-size.height // 2), -(-size.width // 2))
            return [encode(Pixels(level), index, options) for level in (full, half)]
        except (OSError, ValueError, MemoryError, ChangedError) as error:
            return str(error) or type(error).__name__

    def shuffle(self, rng: np.random.Generator) -> np.ndarray:
        """Return a random order of the images, int64 [N].

        Images of a group stay together, so that each group is read once.
        """
        count = len(self.images.labels)
        if self.groups is None:
            return rng.permutation(count)
        groups = np.split(np.arange(count), np.flatnonzero(np.diff(self.groups)) + 1)
        mixed = [rng.permutation(groups[number]) for number in rng.permutation(len(groups))]
        return np.concatenate(mixed)

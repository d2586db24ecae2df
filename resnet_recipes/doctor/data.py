"""Check whether a run can train on a data folder."""

import hashlib
import io
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from resnet_recipes.base.errors import Command, Fix, Hint, NotReadyError, Value
from resnet_recipes.base.text import Progress, do_nothing
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.layout import find_parts, list_split
from resnet_recipes.data.imagenet import is_imagenet
from resnet_recipes.data.images.decode import FORMATS, KINDS, BadImageError, Picture, read_file
from resnet_recipes.data.root import CONVERT_HINT, SPLITS, find_root_problem
from resnet_recipes.data.survey import survey_files
from resnet_recipes.doctor import Finding, list_few, make_finding, run_checks
from resnet_recipes.doctor.beton import check_betons

#: Unusual kinds of images.
ODDITIES = {
    "misnamed": "images whose suffix does not match their contents (read by their contents)",
    "cmyk": "CMYK images (converted to RGB)",
    "gray": "grayscale images (converted to RGB)",
    "deep": "images with more than 8 bits per channel (reduced to 8)",
    "transparent": "images with transparency or a palette (converted to RGB)",
    "animated": "animated images (only the first frame is read)",
    "rotated": "images with an EXIF orientation (ignored, as in torchvision ImageFolder)",
}

_MODES = {
    "CMYK": "cmyk",
    "L": "gray",
    "1": "gray",
    "RGBA": "transparent",
    "LA": "transparent",
    "P": "transparent",
}
_ORIENTATION = 0x0112
_BLOCK_IMAGES = 256  # images decoded between two checks of the time

IMAGENET_COUNTS = {"train": 1_281_167, "val": 50_000}


def check_data(
    root: Path,
    images: bool = True,
    progress: Progress = do_nothing,
    nested_classes: bool | None = None,
) -> list[Finding]:
    """Check a folder of class folders or .beton files, or one .beton file.

    With `images`, decode every image. `nested_classes` is the setting of a run.
    """
    betons = _find_betons(root)
    findings = list(check_betons(betons, images, progress))
    if not betons and (problem := find_root_problem(str(root.absolute()))):
        commands = (
            Command.of("resnet-recipes", "doctor", "data", line)
            if isinstance(line, Value)
            else line
            for line in problem.advice
        )
        return [make_finding(problem._replace(fix=tuple(commands)))]
    if betons and not any((root / split).is_dir() for split in SPLITS):
        return findings + [
            Finding("fix", f"{root} has no {split}.beton", CONVERT_HINT)
            for split in SPLITS
            if {root, root / f"{split}.beton"}.isdisjoint(betons)
        ]
    config = None
    try:
        config = make_config(root, nested_classes)
        counts = [*_check_folders(config, compares=not images)]
        if config.val_share:
            what = f"{root} has no validation images; this check sets aside a tenth of each class"
            findings.append(Finding("warn", what, "data.val_share=0.1"))
        findings += counts
    except NotReadyError as error:
        if others := [problem for problem in error.problems if problem.key != "data.val_share"]:
            findings += map(make_finding, others)
        else:
            fix = (
                Hint(error.problems[0].about("data.val_share=0.1")),
                Hint("to train, add images or a folder val; `eval` needs neither"),
            )
            findings.append(Finding("fix", f"{root} has no validation images", fix))
    with suppress(NotReadyError):  # a split without images was reported
        findings += _check_images(config, progress) if config and images else ()
    return findings


def make_config(root: Path, nested_classes: bool | None) -> DataConfig:
    """Return settings that read a folder. Raises like `find_parts`.

    Without validation images, a tenth of the training images is set aside.
    """
    val_share = 0.0 if "val" in find_parts(root) else 0.1
    return DataConfig(root=str(root.absolute()), val_share=val_share, nested_classes=nested_classes)


def _find_betons(root: Path) -> list[Path]:
    """Return `root` if it is a .beton file, else the .beton files in it that a run reads."""
    if root.suffix == ".beton":
        return [root]
    return [path for split in SPLITS if (path := root / f"{split}.beton").exists()]


def _check_folders(config: DataConfig, compares: bool) -> Iterator[Finding]:
    """Count the images as a run does. Raises NotReadyError if a run could not start."""
    facts = survey_files(config, compares=compares)
    for split, total in zip(SPLITS, (facts.train_examples, facts.eval_examples), strict=True):
        yield Finding("ok", f"{split}: {total:,} images in {len(facts.classes):,} classes")
        if is_imagenet(facts.classes) and total != IMAGENET_COUNTS[split]:
            what = (
                f"{split} looks like ImageNet, whose {split} has {IMAGENET_COUNTS[split]:,} images"
            )
            yield Finding("warn", what, Hint("check that everything was unpacked"))
    yield from (Finding("ok", detail) for detail in facts.details)
    yield from (Finding("warn" if note.fix else "ok", *note) for note in facts.notes)


def _check_images(config: DataConfig, progress: Progress) -> Iterator[Finding]:
    """Decode every image of both splits, and find files that both contain."""
    odd: dict[str, list[str]] = defaultdict(list)
    bad: dict[str, list[str]] = {split: [] for split in SPLITS}
    digests: dict[str, dict[bytes, str]] = {split: {} for split in SPLITS}
    files = [(split, path) for split in SPLITS for path in list_split(config, split).paths]
    results = run_checks(files, lambda file: check_image(file[1]), progress)
    for (split, path), result in zip(files, results, strict=True):
        digests[split][result.digest] = path
        if result.bad:
            bad[split].append(f"{path} {result.bad}")
        for name in result.oddities:
            odd[name].append(path)
    for split, unreadable in bad.items():
        fix: Fix = Hint("replace or delete them")
        if split == "train":
            fix = ("data.on_bad_image=skip", Hint("or replace or delete them"))
        if unreadable:
            what = f"unreadable images in {split}: {len(unreadable):,}"
            yield Finding("fix", what, fix, list_few(unreadable))
    for name, paths in odd.items():
        fix = Hint("exiftran -ai FILES rotates JPEGs in place") if name == "rotated" else ""
        what = f"{ODDITIES[name]}: {len(paths):,}"
        yield Finding("warn" if fix else "ok", what, fix, list_few(paths))
    train = digests["train"]
    val = digests["val"]
    both = val.keys() & train.keys() - {b""}
    if shared := [f"{val[digest]}  {train[digest]}" for digest in both]:
        what = f"validation images that are identical to training images: {len(shared):,}"
        yield Finding("warn", what, Hint("delete one image of each pair"), list_few(shared))
    failed = sum(map(len, bad.values()))
    decoded = f"{len(files) - failed:,} of {len(files):,} images were decoded"
    yield Finding("warn" if failed else "ok", decoded)


class DecodedImages(NamedTuple):
    """The images that were decoded within a time limit."""

    bad: dict[str, list[str]]  # split -> "PATH, which is empty" for each unreadable image
    decoded: int
    total: int


def decode_some(
    config: DataConfig, seconds: float, splits: Sequence[str] = SPLITS
) -> DecodedImages:
    """Decode images of the splits in random order, for about `seconds`."""
    files = [(split, path) for split in splits for path in list_split(config, split).paths]
    random.Random(0).shuffle(files)
    bad: dict[str, list[str]] = {split: [] for split in splits}
    count = 0
    end = time.monotonic() + seconds
    while count < len(files) and time.monotonic() < end:
        block = files[count : count + _BLOCK_IMAGES]
        results = run_checks(block, lambda file: check_image(file[1]), do_nothing)
        for (split, path), result in zip(block, results, strict=True):
            bad[split] += [f"{path}, which {result.bad}"] if result.bad else []
        count += len(block)
    return DecodedImages(bad, count, len(files))


class CheckedImage(NamedTuple):
    """The result of checking one image file."""

    digest: bytes  # BLAKE2 of the file; empty if it cannot be read
    oddities: tuple[str, ...] = ()
    bad: str = ""  # the reason why it cannot be read or decoded


def check_image(path: Path | str) -> CheckedImage:
    """Read and decode one file as training does and return its problems."""
    digest = b""
    try:
        data = read_file(path)
        digest = hashlib.blake2b(data, digest_size=16).digest() if data else b""
        picture = Picture(data)
        picture.pixels()
    except BadImageError as error:
        return CheckedImage(digest, bad=str(error))
    return CheckedImage(digest, tuple(_find_oddities(Path(path).suffix.lower(), data)))


def _find_oddities(suffix: str, data: bytes) -> list[str]:
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=FORMATS) as image,
        ):
            kind = image.format or ""
            mode = image.mode
            orientation = image.getexif().get(_ORIENTATION, 1)
            animated = getattr(image, "is_animated", False) and kind != "MPO"
    except Exception:  # damaged EXIF or ICC data, which training ignores
        return []
    oddities = {
        _MODES.get(mode, ""): mode in _MODES,
        "deep": mode not in _MODES and mode[0] in "IF",
        "misnamed": suffix not in KINDS.get(kind, (suffix,)),
        "animated": animated,
        "rotated": orientation not in (0, 1),
    }
    return [name for name, holds in oddities.items() if holds]

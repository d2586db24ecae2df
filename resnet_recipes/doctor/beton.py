"""Check that a run can read every sample of .beton files."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Fix, Hint
from resnet_recipes.base.text import Progress, format_bytes
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton import Beton, find_pair_problems
from resnet_recipes.data.beton.samples import Samples, is_sorted_by_class, open_samples
from resnet_recipes.data.images import use_decoder
from resnet_recipes.data.images.python import EvalImages
from resnet_recipes.data.loading.storage import Rows, UnreadableError
from resnet_recipes.data.root import CONVERT_HINT
from resnet_recipes.doctor import Finding, list_few, make_finding, run_checks

_THUMBNAIL_SIZE = 8  # pixels: height and width of the resized samples


def check_betons(paths: Sequence[Path], images: bool, progress: Progress) -> Iterator[Finding]:
    """Check one .beton file, or train.beton and val.beton as a pair.

    With `images`, also decode every sample, unless there are other problems.
    """
    files = list[Samples]()
    errors = ErrorCollector()
    for path in paths:
        with errors:
            files.append(open_samples(path))
    problems = errors.problems
    betons = [samples.beton for samples in files]
    if len(betons) == 2:
        problems += find_pair_problems(*betons)
    betons += [samples.small for samples in files if samples.small]
    for beton in betons:
        yield from _describe_beton(beton)
    yield from map(make_finding, problems)
    if images and not problems:
        for samples in files:
            for beton in filter(None, (samples.beton, samples.small)):
                yield from _check_samples(beton, samples.fix(), progress)


def make_verifier(beton: Beton) -> Callable[[int], str | None]:
    """Return a thread-safe function that reads a sample as training does.

    It returns why the sample is damaged, or None.
    """
    storage = use_decoder(
        EvalImages(Samples(beton), DataConfig(eval_resize=_THUMBNAIL_SIZE)), count_cores()
    )

    def verify(index: int) -> str | None:
        indices = np.array([index])
        pixels = np.empty((1, _THUMBNAIL_SIZE, _THUMBNAIL_SIZE, 3), np.uint8)
        try:
            storage.fill(
                Rows(0, indices, np.zeros(1, int), pixels, np.empty(1, int), np.empty(1, bool))
            )
        except UnreadableError as error:
            return error.reason
        return None

    return verify


def _describe_beton(beton: Beton) -> Iterator[Finding]:
    name = beton.path.name
    size = format_bytes(beton.content.size)
    yield Finding("ok", f"{name}: {len(beton):,} images in {len(beton.classes):,} classes, {size}")
    if beton.sidecar is None:
        yield Finding(
            "warn",
            f"{name} has no sidecar with checksums: damaged images may go unnoticed",
            CONVERT_HINT,
        )
    if is_sorted_by_class(beton):
        what = f"{name} is stored class by class: data.order=quasi_random cannot be used"
        yield Finding("warn", what, (CONVERT_HINT, Hint("it shuffles by default")))


def _check_samples(beton: Beton, fix: Fix, progress: Progress) -> Iterator[Finding]:
    """Read every sample in file order, using all cores; `fix` is for damaged samples."""
    name = beton.path.name
    order = np.argsort(beton.starts).tolist()
    reasons = zip(order, run_checks(order, make_verifier(beton), progress), strict=True)
    if damaged := sorted((index, reason) for index, reason in reasons if reason):
        faults = [f"sample {index}: {reason}" for index, reason in damaged]
        yield Finding(
            "fix",
            f"{len(damaged):,} samples of {name} are damaged",
            fix,
            list_few(faults),
        )
    else:
        yield Finding("ok", f"{name}: all {len(order):,} samples were read and decoded")

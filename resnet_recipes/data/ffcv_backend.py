"""The `ffcv` backend: train.beton and val.beton under the loader contract."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, SampleAugment, Share
from resnet_recipes.data.beton.file import Beton, open_beton, pair_problems
from resnet_recipes.data.beton.native import ffcv_native
from resnet_recipes.data.beton.order import quasi_random, quasi_random_problem
from resnet_recipes.data.beton.reader import Augment, BetonReader, Room
from resnet_recipes.data.cores import workers
from resnet_recipes.data.crop import Cuts, TrainCrop, centre_crops
from resnet_recipes.data.memory import available_memory
from resnet_recipes.data.order import eval_jobs, shuffled, steps_per_epoch, train_jobs
from resnet_recipes.errors import NotReadyError, Problem


def measure(config: DataConfig) -> DataFacts:
    """Open both files, check that they belong together and that this machine can read them; takes seconds, decodes nothing.

    Raises NotReadyError with everything that is in the way.
    """
    ffcv_native()
    root = Path(config.root)
    train, val = open_beton(root / "train.beton"), open_beton(root / "val.beton")
    problems = list(_problems(config, train, val))
    if problems:
        raise NotReadyError(problems)
    return DataFacts("ffcv", root, len(train), len(val), train.classes, tuple(_notes(config, train, val)))


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None = None) -> "BetonTrainLoader":
    """Open this rank's part of the training stream."""
    return BetonTrainLoader(config, open_beton(facts.root / "train.beton"), share, augment)


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> "BetonEvalLoader":
    """Open this rank's part of the evaluation set."""
    return BetonEvalLoader(config, open_beton(facts.root / "val.beton"), share)


class BetonTrainLoader:
    """Random crops from train.beton: a TrainLoader whose pixels are a function of (seed, epoch, index), whatever the number of threads."""

    skipped = ()

    def __init__(self, config: DataConfig, beton: Beton, share: Share, augment: SampleAugment | None):
        self.examples = len(beton)
        self.steps_per_epoch = steps_per_epoch(share, self.examples)
        self._config, self._share = config, share
        self._order = quasi_random(beton) if config.order == "quasi_random" else shuffled
        side = max(share.train_pixels, default=config.train_size)
        room = Room(max(1, workers(config, share.world_size)), config.prefetch, share.rank_size, side)
        crop = TrainCrop.of(config, share)
        self._reader = BetonReader(beton, crop.cuts, room, _seeded(augment, crop))
        self._reader.streamed = not _fits(beton)

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches from `first_step` on, without end; what lies before is not decoded."""
        return self._reader.batches(train_jobs(self._config, self._share, self.examples, first_step, self._order))

    def close(self) -> None:
        """Stop the threads; safe to call twice."""
        self._reader.close()


class BetonEvalLoader:
    """Centre crops from val.beton: an EvalLoader that cuts eval_size / eval_resize of the shorter side, then resizes, as FFCV does."""

    def __init__(self, config: DataConfig, beton: Beton, share: Share):
        self.examples = len(beton)
        self._config, self._share = config, share
        room = Room(max(1, workers(config, share.world_size)), config.prefetch, share.eval_size, config.eval_size)
        self._reader = BetonReader(beton, self._centres, room)

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's batches, in a fixed order, the last one as short as it is."""
        return self._reader.batches(eval_jobs(self._config, self._share, self.examples))

    def close(self) -> None:
        """Stop the threads; safe to call twice."""
        self._reader.close()

    def _centres(self, epoch: int, indices: np.ndarray, sizes: np.ndarray) -> Cuts:
        return Cuts(centre_crops(sizes, self._config.eval_size / self._config.eval_resize), np.zeros(len(indices), bool))


def _problems(config: DataConfig, train: Beton, val: Beton) -> Iterator[Problem]:
    """Yield what keeps these two files from being trained on with these settings."""
    yield from pair_problems(train, val)
    if config.on_bad_image == "skip":
        rule = "is for image files; a damaged sample of a .beton file means that the file is damaged"
        yield Problem("data.on_bad_image", "skip", rule, "data.on_bad_image=error")
    if config.order == "quasi_random" and (problem := quasi_random_problem(train)):
        yield problem


def _notes(config: DataConfig, train: Beton, val: Beton) -> Iterator[str]:
    """Yield what a user should know about these files on this machine."""
    size, free = train.content.size / 1e9, available_memory() / 1e9
    if _fits(train):
        yield f"train.beton ({size:.2f} GB) fits into memory ({free:.0f} GB free): os_cache=true, read from the disk once"
    else:
        hint = "" if config.order == "quasi_random" else "; data.order=quasi_random reads larger pieces"
        yield f"train.beton ({size:.2f} GB) does not fit into memory ({free:.0f} GB free): os_cache=false, read every epoch{hint}"
    for beton in (train, val):
        if beton.sidecar is None:
            yield f"{beton.path.name} has no note beside it (not made by resnet-recipes convert): no class names, and damage may go unseen"


def _fits(beton: Beton) -> bool:
    """Say whether the page cache can hold the whole file, with a tenth of the memory left for everything else."""
    return beton.content.size < 0.9 * available_memory()


def _seeded(augment: SampleAugment | None, crop: TrainCrop) -> Augment | None:
    """Bind a per-image augmentation to randomness that depends on (seed, epoch, index) alone."""
    if augment is None:
        return None

    def seeded(image: Image.Image, epoch: int, index: int) -> Image.Image:
        return augment(image, crop.generator(epoch, index))

    return seeded

"""The `ffcv` backend: train.beton and val.beton."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from resnet_recipes.data.base import DataConfig, DataFacts, SampleAugment, Share
from resnet_recipes.data.beton.decoder import Manner, decoder, require_decoder
from resnet_recipes.data.beton.file import Beton, open_beton, pair_problems
from resnet_recipes.data.beton.quasi_random import quasi_random, quasi_random_problem
from resnet_recipes.data.beton.storage import Augment, BetonStorage
from resnet_recipes.data.crop import Cuts, TrainCrop, centre_crops
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.memory import available_memory
from resnet_recipes.data.native.library import description, why_not
from resnet_recipes.errors import NotReadyError, Problem


def measure(config: DataConfig, tell: object) -> DataFacts:
    """Open both files, check that they match and that this machine can read them; takes seconds, decodes nothing.

    Raises NotReadyError with everything that is in the way.
    """
    require_decoder()
    root = Path(config.root)
    train, val = open_beton(root / "train.beton"), open_beton(root / "val.beton")
    problems = list(_problems(config, train, val))
    if problems:
        raise NotReadyError(problems)
    return DataFacts("ffcv", root, len(train), len(val), train.classes, tuple(_notes(config, train, val)), train.digest,
                     val.digest)


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None) -> Pipeline:
    """Open train.beton: random crops."""
    beton, crop = _unchanged(facts.root / "train.beton", facts.train_digest), TrainCrop.of(config, share)
    capacity = Capacity.for_training(config, share)
    decode = decoder(beton, Manner(capacity.workers, config.reduced_decode))
    storage = BetonStorage(beton, crop.cuts, decode, _seeded(augment, crop), streamed=not _fits(beton))
    pipeline = Pipeline(storage, capacity)
    if config.order == "quasi_random":
        pipeline.permute = quasi_random(beton)
    return pipeline


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> Pipeline:
    """Open val.beton; resized and cut like image files, except that FFCV's library cuts before it resizes."""
    def centres(epoch: int, indices: np.ndarray, copies: np.ndarray, sizes: np.ndarray) -> Cuts:
        boxes = centre_crops(sizes, config.eval_size / config.eval_resize)
        return Cuts(boxes, np.zeros(len(indices), bool), config.eval_interpolation == "bicubic")

    beton, capacity = _unchanged(facts.root / "val.beton", facts.eval_digest), Capacity.for_evaluation(config, share)
    return Pipeline(BetonStorage(beton, centres, decoder(beton, Manner(capacity.workers, resize=config.eval_resize))),
                    capacity)


def _unchanged(path: Path, digest: str) -> Beton:
    """Open a file; raises NotReadyError if it is another one than when the run began."""
    beton = open_beton(path)
    if digest and beton.digest != digest:
        rule = "is not the file with which the run began"
        raise NotReadyError([Problem("data.root", str(path), rule, "put the file back, or start a new run")])
    return beton


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
        yield (f"train.beton ({size:.2f} GB) fits into memory ({free:.0f} GB free): os_cache=true, "
               "read from the disk once")
    else:
        hint = "" if config.order == "quasi_random" else "; data.order=quasi_random reads larger pieces"
        yield (f"train.beton ({size:.2f} GB) does not fit into memory ({free:.0f} GB free): os_cache=false, "
               f"read every epoch{hint}")
    why = why_not()
    yield f"samples are decoded by FFCV's library: the native decoder {why}; resnet-recipes doctor native" if why else \
        f"samples are decoded natively ({description()})"
    for beton in (train, val):
        if beton.sidecar is None:
            yield (f"{beton.path.name} has no sidecar (not made by resnet-recipes convert): no class names, "
                   "and damage may go unseen")


def _fits(beton: Beton) -> bool:
    """Say whether the page cache can hold the whole file, with a tenth of the memory left for everything else."""
    return beton.content.size < 0.9 * available_memory()


def _seeded(augment: SampleAugment | None, crop: TrainCrop) -> Augment | None:
    """Bind a per-image augmentation to its own randomness."""
    return augment and (lambda image, *key: augment(image, crop.generator(*key)))

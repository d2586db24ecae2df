"""Find validation images that look like training images, by a network's features."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.base.errors import Hint
from resnet_recipes.base.text import Progress, silent
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.data.root import SPLITS
from resnet_recipes.doctor import Finding
from resnet_recipes.doctor.data import make_config
from resnet_recipes.inference.images import UnlabeledImages
from resnet_recipes.inference.trained import TrainedNetwork

#: Minimum cosine similarity of features of probable duplicates. With ImageNet weights, 43 of 50
#: copies of photographs of ants and bees reach it, and none of 153 other photographs.
_SAME = 0.85

_SHOWN = 20  # pairs shown


def check_similar(trained: TrainedNetwork, root: Path, progress: Progress = silent) -> Finding:
    """Return which validation images look like training images. Raises NotReadyError."""
    pairs = find_similar(trained, make_config(root), progress)
    if not (same := [pair for pair in pairs if pair.cosine >= _SAME]):
        return Finding("ok", "no validation image looks like a training image to this network")
    what = f"validation images that look like a training image: {len(same):,}"
    lines = tuple(f"{pair.cosine:.3f}  {pair.val}  {pair.train}" for pair in same[:_SHOWN])
    return Finding("warn", what, Hint("look at them; remove copies from train/"), lines)


class SimilarPair(NamedTuple):
    """A validation image, and the training image with the most similar features."""

    val: str
    train: str
    cosine: float


def find_similar(
    trained: TrainedNetwork, config: DataConfig, progress: Progress = silent
) -> list[SimilarPair]:
    """Return each validation image with its nearest training image, the most similar first.

    Features of the validation images stay in memory; features of training images are computed a
    batch at a time. Raises NotReadyError.
    """
    train, val = (list_split(config, split).paths for split in SPLITS)
    val_features = torch.cat(list(_embed(trained, val)))
    best, places, done = torch.zeros(len(val)), torch.zeros(len(val), dtype=torch.int64), 0
    for features in _embed(trained, train):
        cosines, nearest = (val_features @ features.T).max(1)
        places = torch.where(cosines > best, nearest + done, places)
        best = best.maximum(cosines)
        done += len(features)
        progress(done, len(train))
    order = best.argsort(descending=True, stable=True).tolist()
    return [SimilarPair(val[row], train[places[row]], float(best[row])) for row in order]


@torch.no_grad()
def _embed(trained: TrainedNetwork, paths: Sequence[str]) -> Iterator[Tensor]:
    """Yield normalized image features [N, D], on the CPU.

    Features of black images are 0, because unreadable images are replaced by black ones.
    """
    recipe = trained.recipe
    with closing(UnlabeledImages(paths, recipe.data, recipe.batch.eval_size)) as images:
        for raw in images.batches():
            features = trained.network.embed(images.normalized(raw).to(trained.device))
            is_seen = raw.pixels.flatten(1).amax(1, keepdim=True) > 0
            yield F.normalize(features).cpu() * is_seen

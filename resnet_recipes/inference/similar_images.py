"""Find validation images that look like training images, by a network's features."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.base.errors import Hint
from resnet_recipes.base.text import Progress, do_nothing
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.data.root import SPLITS
from resnet_recipes.doctor import Finding
from resnet_recipes.doctor.data import make_config
from resnet_recipes.inference.images import UnlabeledImages
from resnet_recipes.inference.trained_network import TrainedNetwork

#: Minimum cosine similarity of features of probable duplicates. With ImageNet weights, 47 of 50
#: copies of photographs of ants and bees reach it, and none of 153 other photographs.
_MIN_COSINE = 0.85

_MAX_PAIRS = 20  # pairs shown

_CHUNK_IMAGES = 256  # validation images that are compared together


def check_similar(trained: TrainedNetwork, root: Path, progress: Progress) -> Finding:
    """Return which validation images look like training images. Raises like `find_similar`."""
    pairs = find_similar(trained, make_config(root, trained.recipe.data.nested_classes), progress)
    lines = [
        f"{pair.cosine:.3f}  {pair.val}  {pair.train}"
        for pair in pairs
        if pair.cosine >= _MIN_COSINE
    ]
    if not lines:
        return Finding("ok", "no validation image looks like a training image to this network")
    what = f"validation images that look like a training image: {len(lines):,}"
    hint = Hint("look at them; remove copies from train/")
    return Finding("warn", what, hint, tuple(lines[:_MAX_PAIRS]))


class SimilarPair(NamedTuple):
    """A validation image, and the training image with the most similar features."""

    val: str
    train: str
    cosine: float


@torch.no_grad()
def find_similar(
    trained: TrainedNetwork, config: DataConfig, progress: Progress = do_nothing
) -> list[SimilarPair]:
    """Return each validation image with its nearest training image, the most similar first.

    The features of all images are in memory, for a ResNet-50 8 kB per image. They are 0 for black
    images, because unreadable images are replaced by black ones. Raises NotReadyError or OSError
    if the images cannot be listed.
    """
    train, val = (list_split(config, split).paths for split in SPLITS)
    features: list[Tensor] = []
    data, batch = trained.recipe.data, trained.recipe.batch.eval_size
    with closing(UnlabeledImages([*train, *val], data, batch)) as images:
        for raw in images.batches():
            embedded = trained.network.embed(images.normalize(raw).to(trained.device))
            is_seen = raw.pixels.flatten(1).amax(1, keepdim=True) > 0
            features.append(F.normalize(embedded).cpu() * is_seen)
            progress(min(batch * len(features), images.examples), images.examples)
    train_features, val_features = torch.cat(features).split([len(train), len(val)])
    nearest = [(part @ train_features.T).max(1) for part in val_features.split(_CHUNK_IMAGES)]
    cosines, indices = (torch.cat(parts) for parts in zip(*nearest, strict=True))
    order = cosines.argsort(descending=True, stable=True).tolist()
    return [SimilarPair(val[row], train[indices[row]], float(cosines[row])) for row in order]

"""Several networks, each evaluated on its own images, such as cross-validation folds."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import numpy as np
import torch

from resnet_recipes.base.errors import Command, Hint, RecipeError
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.inference.trained_network import EvaluationResult, TrainedNetwork
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.outcomes import Confusion, Outcomes

#: Brightness of pixels that do not support the class, as a fraction.
_DARK_BRIGHTNESS = 0.2


class PooledImage(NamedTuple):
    """An image, with the network that is evaluated on it."""

    network: TrainedNetwork
    loader: EvalLoader
    position: int  # position of the image in `loader`

    @property
    def path(self) -> str:
        """The name of the image's file or sample."""
        return self.loader.source.path(self.position)

    def make_picture(self, label: int) -> np.ndarray:
        """Return the image as its network sees it, uint8 [S, S, 3].

        If the network has a feature map, the image is repeated to the right, dark where its pixels
        do not support the class: [S, 2 S, 3].
        """
        (batch,) = self.loader.eval_batches(np.array([self.position]))
        images = self.loader.normalize(batch).to(self.network.device)
        labels = torch.tensor([label], device=images.device)
        heat = self.network.network.eval().heat_map(images, labels)
        tiles = [batch.pixels.float()]
        if heat is not None:
            tiles.append(tiles[0] * (_DARK_BRIGHTNESS + (1 - _DARK_BRIGHTNESS) * heat.cpu()))
        return torch.cat(tiles, 3)[0].permute(1, 2, 0).byte().numpy()


@contextmanager
def open_pool(networks: Sequence[TrainedNetwork]) -> Iterator[list[PooledImage]]:
    """Open the evaluation images of all networks, in their order.

    Raises NotReadyError if the images of a network cannot be opened.
    """
    with ExitStack() as stack:
        loaders = [stack.enter_context(closing(network.open_images())) for network in networks]
        yield [
            PooledImage(network, loader, position)
            for network, loader in zip(networks, loaders, strict=True)
            for position in range(loader.examples)
        ]


def check_pool(networks: Sequence[TrainedNetwork], sources: Sequence[str]) -> None:
    """Raise RecipeError unless all networks have the same classes and disjoint images.

    `sources` are the arguments that name the networks.

    Raises NotReadyError if the images of a network cannot be opened.
    """
    first, *others = networks
    for network, source in zip(others, sources[1:], strict=True):
        if network.network.classes != first.network.classes:
            clause = f"has other classes than {sources[0]}"
            raise RecipeError.of("RUN", source, clause, Hint("evaluate one run at a time"))
    with open_pool(networks) as images:
        paths = [os.path.realpath(image.path) for image in images]
    if twice := len(paths) - len({*paths}):
        clause = f"have {twice:,} images in common; only runs on different images are pooled"
        are_runs = all(network.path and network.path.is_dir() for network in networks)
        fix = Command.of("resnet-recipes", "compare", *sources) if are_runs else ""
        raise RecipeError.of("RUN", " ".join(sources), clause, fix)


def pool_results(results: Sequence[EvaluationResult]) -> EvaluationResult:
    """Return the result over all images, each counted once."""
    if len(results) == 1:
        return results[0]
    outcomes = Outcomes.concatenate([result.outcomes for result in results])
    counts = [result.metrics.examples for result in results]
    means = np.average([result.metrics[:3] for result in results], axis=0, weights=counts)
    top1, top5, loss = means.tolist()
    balanced = np.mean([row.recall_percent for row in Confusion(outcomes).classes()])
    metrics = Metrics(top1, top5, loss, sum(counts), float(balanced))
    seconds = sum(result.seconds for result in results)
    return EvaluationResult(metrics, seconds, results[0].device, outcomes)

"""Several networks, each evaluated on its own images, such as cross-validation folds."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Self

import numpy as np
import torch

from resnet_recipes.base.errors import Hint, RecipeError
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.inference.trained import EvaluationResult, TrainedNetwork
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.outcomes import Confusion, Outcomes

#: Brightness of pixels that do not support the class, as a fraction.
_DARK = 0.2


class PooledImages:
    """The images of several networks, in the order of the networks."""

    def __init__(self, parts: Iterable[tuple[TrainedNetwork, EvalLoader]]):
        """Create from pairs of a network and its images."""
        self._loaders, self._places = [], []
        for network, loader in parts:
            self._loaders.append(loader)
            self._places += [(network, loader, place) for place in range(loader.examples)]

    @classmethod
    def of(cls, networks: Sequence[TrainedNetwork]) -> Self:
        """Open the evaluation images of all networks. Raises NotReadyError."""
        return cls((network, network.open_images()) for network in networks)

    def paths(self) -> list[str]:
        """Return the name of each image."""
        return [loader.path(place) for _, loader, place in self._places]

    def draw(self, index: int, label: int) -> np.ndarray:
        """Return an image as its network sees it, uint8 [S, S, 3].

        If the network has a feature map, the image is repeated to the right, dark where its pixels
        do not support the class: [S, 2 S, 3].
        """
        network, loader, place = self._places[index]
        (batch,) = loader.only(np.array([place]))
        images = loader.normalized(batch).to(network.device)
        heat = network.network.eval().heat_map(images, torch.tensor([label]).to(network.device))
        pixels = batch.pixels[0].permute(1, 2, 0).numpy(force=True)
        if heat is None:
            return pixels.copy()
        shaded = pixels * (_DARK + (1 - _DARK) * heat[0, :, :, None].numpy(force=True))
        return np.concatenate([pixels, shaded.astype(np.uint8)], axis=1)

    def close(self) -> None:
        """Stop the workers."""
        for loader in self._loaders:
            loader.close()


def check_pool(networks: Sequence[TrainedNetwork]) -> None:
    """Raise RecipeError unless all networks have the same classes and disjoint images."""
    first, *others = networks
    for network in others:
        if network.network.classes != first.network.classes:
            rule = f"has other classes than {first.place}"
            raise RecipeError.of("RUN", str(network.place), rule)
    with closing(PooledImages.of(networks)) as images:
        paths = images.paths()
    if twice := len(paths) - len({*paths}):
        rule = f"cannot be pooled: they have {twice:,} validation images in common"
        names = " ".join(str(network.place) for network in networks)
        hint = Hint("resnet-train -m data.fold=1/5,2/5,3/5,4/5,5/5 trains such runs")
        raise RecipeError.of("RUN", names, rule, hint)


def pool_results(results: Sequence[EvaluationResult]) -> EvaluationResult:
    """Return the result over all images, each counted once."""
    if len(results) == 1:
        return results[0]
    outcomes = Outcomes.concatenate([result.outcomes for result in results])
    counts = [result.metrics.examples for result in results]
    top1, top5, loss = (
        float(np.average([result.metrics[field] for result in results], weights=counts))
        for field in range(3)
    )
    balanced = np.mean([row.top1_percent for row in Confusion(outcomes).classes()])
    metrics = Metrics(top1, top5, loss, sum(counts), float(balanced))
    seconds = sum(result.seconds for result in results)
    return EvaluationResult(metrics, seconds, results[0].device, outcomes)

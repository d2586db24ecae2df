"""Several networks, each evaluated on images of its own: the folds of a cross-validation."""

from collections.abc import Iterator, Sequence

import numpy as np

from resnet_recipes.base.errors import Hint, RecipeError
from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.inference.trained import EvaluationResult, TrainedNetwork
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.outcomes import Confusion, Outcomes


class PooledImages:
    """The evaluation images of several networks, one network after the other."""

    def __init__(self, networks: Sequence[TrainedNetwork]):
        """Open the images of all networks. Raises NotReadyError."""
        self._loaders = [network.open_images() for network in networks]
        self._ends = np.cumsum([loader.examples for loader in self._loaders])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        loader, own = self._find(index)
        return loader.path(own)

    def only(self, indices: Sequence[int]) -> Iterator[RawBatch]:
        """Yield some images in this order, a batch for each."""
        for loader, own in map(self._find, indices):
            yield from loader.only(np.array([own]))

    def close(self) -> None:
        """Stop the workers."""
        for loader in self._loaders:
            loader.close()

    def _find(self, index: int) -> tuple[EvalLoader, int]:
        """Return the loader of an image, and the image's index there."""
        place = int(np.searchsorted(self._ends, index, side="right"))
        return self._loaders[place], index - int(self._ends[place]) + self._loaders[place].examples


def check_pool(networks: Sequence[TrainedNetwork]) -> None:
    """Raise RecipeError unless the networks have the same classes and no image in common."""
    first, *others = networks
    for network in others:
        if network.network.classes != first.network.classes:
            rule = f"has other classes than {first.place}"
            raise RecipeError.of("RUN", str(network.place), rule)
    images = PooledImages(networks)
    try:
        paths = [images.path(index) for index in range(len(images))]
    finally:
        images.close()
    if twice := len(paths) - len({*paths}):
        rule = f"have {twice:,} validation images in common; those of pooled runs must differ"
        names = " ".join(str(network.place) for network in networks)
        hint = Hint("resnet-train -m data.fold=1/5,2/5,3/5,4/5,5/5 trains such runs")
        raise RecipeError.of("RUN", names, rule, hint)


def pool_results(results: Sequence[EvaluationResult]) -> EvaluationResult:
    """Return the result over all images; each counts once."""
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

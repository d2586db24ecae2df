"""Several networks, each evaluated on images of its own: the folds of a cross-validation."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from resnet_recipes.base.errors import Hint, RecipeError
from resnet_recipes.data.base import RawBatch
from resnet_recipes.inference.trained import EvaluationResult, TrainedNetwork
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.outcomes import Confusion, Outcomes


class PooledImages:
    """The evaluation images of several networks, one network after the other."""

    def __init__(self, networks: Sequence[TrainedNetwork]):
        """Open the images of all networks. Raises NotReadyError."""
        self._loaders = [network.open_images() for network in networks]
        self._places = [(loader, own) for loader in self._loaders for own in range(loader.examples)]

    def paths(self) -> list[str]:
        """Return the name of each image."""
        return [loader.path(own) for loader, own in self._places]

    def only(self, indices: Sequence[int]) -> Iterator[RawBatch]:
        """Yield some images in this order, a batch for each."""
        for loader, own in map(self._places.__getitem__, indices):
            yield from loader.only(np.array([own]))

    def close(self) -> None:
        """Stop the workers."""
        for loader in self._loaders:
            loader.close()


def check_pool(networks: Sequence[TrainedNetwork]) -> None:
    """Raise RecipeError unless the networks have the same classes and no image in common."""
    first, *others = networks
    for network in others:
        if network.network.classes != first.network.classes:
            rule = f"has other classes than {first.place}"
            raise RecipeError.of("RUN", str(network.place), rule)
    with closing(PooledImages(networks)) as images:
        paths = images.paths()
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

"""Training and evaluation batches, whatever they are made of."""

from collections.abc import Iterable, Iterator, Sequence

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, RawBatch, Share
from resnet_recipes.data.order import Job, Permute


class Supply:
    """What turns jobs into batches: a Pipeline over a storage, or images that are on the device already."""

    examples: int
    notes: Sequence[str] = ()                      # what a user should know
    skipped: Sequence[str] = ()
    permute: Permute = staticmethod(order.shuffled)

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield the batch of every job, in order; valid until the next one is asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers; safe to call twice."""


class EvalLoader:
    """Evaluation batches; see data.base.EvalLoader."""

    def __init__(self, config: DataConfig, share: Share, supply: Supply):
        self.examples = supply.examples
        self._config, self._share, self._supply = config, share, supply

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one as short as it is."""
        return self._supply.run(order.eval_jobs(self._config, self._share, self.examples))

    def close(self) -> None:
        """Stop all workers; safe to call twice."""
        self._supply.close()


class TrainLoader(EvalLoader):
    """Endless training batches; see data.base.TrainLoader. Every step can be the first, at no cost."""

    def __init__(self, config: DataConfig, share: Share, supply: Supply):
        super().__init__(config, share, supply)
        self.steps_per_epoch = order.whole_batches(share, self.examples)

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches from `first_step` on, without end."""
        return self._supply.run(order.train_jobs(self._config, self._share, self.examples, first_step,
                                                 self._supply.permute))

    @property
    def skipped(self) -> Sequence[str]:
        """Images of this rank that could not be read so far, and were replaced."""
        return self._supply.skipped

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know about how this rank's batches are read."""
        return self._supply.notes

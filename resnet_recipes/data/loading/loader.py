"""Training and evaluation batches, whatever their source."""

from collections.abc import Iterable, Iterator, Sequence

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, RawBatch, Share
from resnet_recipes.data.order import Job, Permute


class Supply:
    """Turns jobs into batches: a Pipeline over a storage, or images already on the device."""

    examples: int
    notes: Sequence[str] = ()                      # what a user should know
    skipped: Sequence[str] = ()
    permute: Permute = staticmethod(order.shuffled)

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order; it is valid until the next one is requested."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers; safe to call twice."""


class EvalLoader:
    """Evaluation batches; see data.base.EvalLoader."""

    def __init__(self, config: DataConfig, share: Share, supply: Supply):
        self.examples = supply.examples
        self._config, self._share, self._supply = config, share, supply

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches; the last one may be smaller."""
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
        """Yield an endless stream of batches, starting with `first_step`."""
        return self._supply.run(order.train_jobs(self._config, self._share, self.examples, first_step,
                                                 self._supply.permute))

    @property
    def skipped(self) -> Sequence[str]:
        """Images of this rank that were unreadable so far and were replaced."""
        return self._supply.skipped

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user: how this rank's batches are read."""
        return self._supply.notes

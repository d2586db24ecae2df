"""Training and evaluation batches, whatever their source."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, RawBatch, Share
from resnet_recipes.data.order import Job, Permute


class BatchSource:
    """Turns jobs into batches: a Pipeline over a storage, or synthetic images."""

    examples: int
    notes: Sequence[str] = ()  # what a user should know
    skipped: Sequence[str] = ()
    permute: Permute = staticmethod(order.shuffled)

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order; it is valid until the next one is requested.

        None instead of a job: the jobs before it have to be used first.
        """
        raise NotImplementedError

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers; safe to call twice."""


class EvalLoader:
    """This rank's part of the evaluation set.

    All ranks together cover each example exactly once, in a fixed order.
    """

    def __init__(self, config: DataConfig, share: Share, source: BatchSource):
        self.examples = source.examples  # over all ranks
        self._config, self._share, self._source = config, share, source

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one short.

        Rank r has examples r, r + world_size, ...
        """
        return self.only(np.arange(self._share.rank, self.examples, self._share.world_size))

    def only(self, indices: np.ndarray) -> Iterator[RawBatch]:
        """Yield these images in batches, the last one short."""
        return self._source.run(order.eval_jobs(self._config, self._share, indices))

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        return self._source.path(index)

    def close(self) -> None:
        """Stop all workers; safe to call twice."""
        self._source.close()


class TrainLoader(EvalLoader):
    """This rank's part of an endless, shuffled stream of global batches.

    Every step can be the first, at no cost.

    The global batch of step k within epoch e is `permutation(seed, e)[k *
    global_size:][:global_size]`, whatever the number of ranks; rank r takes the r-th contiguous
    part. Incomplete last batches are dropped. Crops and flips depend only on (seed, epoch, index).
    """

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield an endless stream of batches, one a step from `first_step` on.

        Nothing of earlier steps is decoded, and each image of later steps once. Up to
        `data.prefetch` batches are read ahead; a run that stops loses them, and decodes them again
        when it resumes. A batch stays valid until the next one is requested. Raises TrainingError
        with the path of an unreadable image.
        """
        return self._source.run(
            order.train_jobs(
                self._config, self._share, self.examples, first_step, self._source.permute
            )
        )

    def whole(self, epoch: int) -> list[Job]:
        """Return this rank's jobs for all images of an epoch, with the crops of training.

        They are blocks in the order of the files, copy after copy.
        """
        return list(order.whole_epoch(self._config, self._share, self.examples, epoch))

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job, valid until the next one is requested."""
        return self._source.run(jobs)

    @property
    def skipped(self) -> Sequence[str]:
        """Images that data.on_bad_image=skip has replaced on this rank so far."""
        return self._source.skipped

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user: how this rank's batches are read."""
        return self._source.notes

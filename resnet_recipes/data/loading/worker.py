"""Fill rows of a batch in a worker of a loader."""

import signal
import warnings
from typing import NamedTuple

import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.loading.slots import Slots
from resnet_recipes.data.loading.storage import Storage, UnreadableError, fill
from resnet_recipes.data.order import Job

#: Signals that stop a whole job and also reach its workers.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)

_context: "WorkerContext"


class WorkerContext(NamedTuple):
    """The state shared by all workers of a loader."""

    storage: Storage
    slots: Slots
    skip_bad: bool

    def fill(self, slot: int, job: Job) -> list[int]:
        """Fill a job's rows; return the indices of unreadable images that were replaced.

        Raises TrainingError, which can be pickled, unlike what an augmentation may raise.
        """
        rows = self.slots.rows(slot, job)
        rows.reading[:] = True
        try:
            return fill(self.storage, rows, self.skip_bad)
        except UnreadableError as error:
            raise TrainingError(str(error)) from None
        except (Exception, SystemExit) as error:  # whatever a user's augmentation may raise
            path = self.storage.path(int(rows.indices[rows.reading.argmax()]))
            raise TrainingError(f"{path}: {type(error).__name__}: {error}") from None
        finally:
            rows.reading[:] = False


def start(context: WorkerContext) -> None:
    """Prepare a worker process.

    It ignores STOPS: when a whole job is stopped, the trainer still needs batches until it has
    saved a checkpoint.
    """
    global _context
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    torch.set_num_threads(1)  # the workers are the parallelism
    warnings.simplefilter("ignore")
    _context = context


def fill_here(slot: int, job: Job) -> list[int]:
    """Fill a job's rows, in a worker process."""
    return _context.fill(slot, job)

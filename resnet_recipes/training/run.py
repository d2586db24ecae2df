"""Everything that a rank needs to train a run."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import nn

from resnet_recipes.base.text import Say
from resnet_recipes.data.loading import EvalLoader, TrainLoader
from resnet_recipes.methods.stack import Stack
from resnet_recipes.ops import Operations
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.all_reduce import AllReduce
from resnet_recipes.training.best_weights import BestWeights
from resnet_recipes.training.clock import Clock, CompilationTimer
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.graphs import GradientGraphs
from resnet_recipes.training.precision import Precision


class RunStatus(Enum):
    """The state of a run after a step."""

    CONTINUE = "continue"
    FINISHED = "finished"  # the last step is done, or the target is reached
    INTERRUPTED = "interrupted"  # a stop was requested; the run can be resumed


class Notes:
    """Messages for the user: queued until there is a listener, then passed on immediately."""

    def __init__(self, queue: Iterable[str] = ()):
        self._queue = [*queue]
        self._show: Say = self._queue.append

    def __call__(self, text: str) -> None:
        self._show(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queue)

    def listen(self, show: Say) -> None:
        """Pass every message to `show`, queued messages first."""
        for text in self._queue:
            show(text)
        self._queue.clear()
        self._show = show


@dataclass
class Run:
    """The parts of a run; `build` creates them in the required order."""

    plan: Plan
    rank: Rank
    model: nn.Module
    all_reduce: AllReduce  # averages gradients over ranks
    optimizer: torch.optim.Optimizer
    methods: Stack
    operations: Operations  # fused operations that the network calls
    precision: Precision
    clock: Clock
    searched_sizes: Collection[int]  # image sizes, in pixels, that start a cuDNN search
    train_data: TrainLoader
    eval_data: EvalLoader
    best: BestWeights  # weights of the best evaluation, with checkpoint.best
    graphs: GradientGraphs | None = None  # replay gradients on a GPU
    compilation: CompilationTimer = field(default_factory=CompilationTimer)
    notes: Notes = field(default_factory=Notes)
    has_pending_evaluation: bool = False  # a due evaluation has not finished
    top1: float = 0.0  # percent, at the last evaluation; EMA weights if the recipe uses EMA

    def close(self) -> None:
        self.train_data.close()
        self.eval_data.close()

    @property
    def has_reached_target(self) -> bool:
        """Whether evaluation.stop_at_top1 ends the run, the same on every rank."""
        target = self.plan.recipe.evaluation.stop_at_top1
        return target is not None and self.top1 >= target

    def get_status(self, done: int, end: int, is_stopping: bool = False) -> RunStatus:
        """Return whether the run continues, is finished or is interrupted.

        `done` of `end` steps are done. `is_stopping` is true if any rank was asked to stop. A
        run whose evaluation was interrupted is not finished, even after its last step.
        """
        if self.has_pending_evaluation:
            return RunStatus.INTERRUPTED
        if done == end or self.has_reached_target:
            return RunStatus.FINISHED
        return RunStatus.INTERRUPTED if is_stopping else RunStatus.CONTINUE

"""A run: everything that a rank needs to train."""

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
from resnet_recipes.training.clock import Clock, Compiling
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.evaluate import Best
from resnet_recipes.training.exchange import Exchange
from resnet_recipes.training.graphs import Graphs
from resnet_recipes.training.precision import Precision


class Verdict(Enum):
    """Whether training continues after a step."""

    CONTINUE = "continue"
    FINISHED = "finished"  # it was the last step, or the target is reached
    INTERRUPTED = "interrupted"  # somebody asked to stop; the run can be resumed


class Notes:
    """Sentences for the user: kept until somebody listens, passed on from then on."""

    def __init__(self, kept: Iterable[str] = ()):
        self._kept = [*kept]
        self._show: Say = self._kept.append

    def __call__(self, text: str) -> None:
        self._show(text)

    def __iter__(self) -> Iterator[str]:
        """Yield the sentences that nobody has heard yet."""
        return iter(self._kept)

    def listen(self, show: Say) -> None:
        """Pass every sentence to `show`, beginning with those that were kept."""
        for text in self._kept:
            show(text)
        self._kept.clear()
        self._show = show


@dataclass
class Run:
    """The parts of a run, created by `build` in the only correct order."""

    plan: Plan
    rank: Rank
    model: nn.Module
    exchange: Exchange  # of gradients, between ranks
    optimizer: torch.optim.Optimizer
    methods: Stack
    operations: Operations  # that the network calls
    precision: Precision
    clock: Clock
    searches: Collection[int]  # sides at which cuDNN searches for algorithms
    train_data: TrainLoader
    eval_data: EvalLoader
    graphs: Graphs | None = None  # replays gradients on a GPU
    compiling: Compiling = field(default_factory=Compiling)
    notes: Notes = field(default_factory=Notes)
    best: Best = field(init=False)  # weights of the best evaluation, with checkpoint.best
    owes_evaluation: bool = False  # after these steps: it was cut short by a request to stop
    top1: float = 0.0  # percent, of the weights that count at the last evaluation

    def __post_init__(self) -> None:
        self.best = Best(self.plan.recipe.checkpoint.best)

    def close(self) -> None:
        """Stop the loaders; safe to call twice."""
        self.train_data.close()
        self.eval_data.close()

    @property
    def has_reached_target(self) -> bool:
        """Return whether evaluation.stop_at_top1 ends the run, the same on every rank."""
        target = self.plan.recipe.evaluation.stop_at_top1
        return target is not None and self.top1 >= target

    def verdict(self, done: int, end: int, is_asked: bool = False) -> Verdict:
        """Return whether a step follows `done` of `end` steps, if ranks are asked to stop or not.

        A run that owes an evaluation is not finished, even after its last step.
        """
        if self.owes_evaluation:
            return Verdict.INTERRUPTED
        if done == end or self.has_reached_target:
            return Verdict.FINISHED
        return Verdict.INTERRUPTED if is_asked else Verdict.CONTINUE

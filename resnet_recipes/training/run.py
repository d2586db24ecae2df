"""A run: everything that a rank needs to train."""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import nn

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
    notes: list[str] = field(
        default_factory=list
    )  # about how it was built, one sentence each, shown to the user
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

    def is_over(self, done: int) -> bool:
        """Return whether no step follows `done` steps: it was the last, or reached the target."""
        return done == self.plan.total_steps or self.has_reached_target

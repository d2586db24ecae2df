"""The training loop: one step, read from top to bottom."""

from functools import partial
from typing import Protocol

import numpy as np
import torch

from resnet_recipes.data.base import normalize
from resnet_recipes.data.stream import Stream
from resnet_recipes.methods.base import Batch, Now
from resnet_recipes.training.distributed import Vote, average_statistics
from resnet_recipes.training.gradient import GradientComputer
from resnet_recipes.training.run import Run, RunStatus


class StepReporter(Protocol):
    """Receives the steps of the loop and decides when to stop."""

    def is_stop_requested(self) -> bool:
        """Return whether this rank is asked to stop."""

    def step(self, done: int, losses: torch.Tensor) -> None:
        """Record a completed step and its examples' losses, float32 [N]."""

    def log(self, done: int, stream: Stream) -> None:
        """Record the steps since the last call."""

    def evaluate(self, done: int) -> None:
        """Evaluate the weights after `done` steps."""

    def save(self, done: int) -> None:
        """Save a checkpoint."""


def train(run: Run, reporter: StepReporter, first: int = 0, end: int | None = None) -> int:
    """Train from step `first` on and return the number of completed steps.

    Stops at `end` (default: the last step of the plan), at the target accuracy, or when the run is
    asked to stop. Raises TrainingError if training fails.
    """
    plan, model, methods, precision = run.plan, run.model, run.methods, run.precision
    data = plan.recipe.data
    params: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
    compute_gradient = GradientComputer(run)
    vote = Vote()
    done = first
    stream = Stream(run.train_data.batches(first), run.rank.device)
    # seeded directly: torch.manual_seed also seeds devices that are not in use, and records a call
    # stack for each at every step
    generators = [torch.default_generator]
    if run.rank.device.type == "cuda":
        generators.append(torch.cuda.default_generators[run.rank.device.index])
    model.train()
    end = plan.total_steps if end is None else end
    if run.has_pending_evaluation:
        reporter.evaluate(first)
    if run.get_status(first, end) is not RunStatus.CONTINUE:
        return first
    # the range comes first, so that zip ends without requesting a batch that no step uses
    for step, raw in zip(range(first, end), stream, strict=False):  # raw: uint8 pixels, labels
        now = Now(
            step, plan.horizon, np.random.default_rng((plan.recipe.seed, run.rank.rank, step))
        )
        # the seed is always generated, so that later random numbers do not depend on the methods
        seed = int(now.rng.integers(2**63))
        if methods.is_random_in_forward or plan.network.is_random_in_forward:
            for generator in generators:
                generator.manual_seed(seed)
        torch.backends.cudnn.benchmark = plan.image_size_at(step) in run.searched_sizes
        for group in run.optimizer.param_groups:
            group["lr"] = plan.lr_at(step) * group["lr_factor"]

        # Every method gets the complete batch once, even if several gradients are computed on it.
        with torch.no_grad():
            images = normalize(raw.pixels, data.mean, data.std)
            batch = Batch.of(images, raw.labels, plan.num_classes, raw.soft_labels)
            batch = methods.transform_batch(batch, now)

        precision.copy_statistics()
        losses = methods.gradient(partial(compute_gradient, batch), params, now)
        precision.step_optimizer(run.optimizer, plan.recipe.optimizer.clip_norm)
        run.optimizer.zero_grad(set_to_none=True)
        methods.after_step(model, now)

        done = step + 1
        if plan.recipe.batch.bn_average and done % plan.steps_per_epoch == 0:
            average_statistics(model)
        # with several ranks, `cast` returns the result of the votes of the previous step
        is_stopping = vote.cast(reporter.is_stop_requested())
        reporter.step(done, losses)  # does not wait for the device
        if plan.logs_at(done) or plan.evaluates_at(done) or is_stopping:
            reporter.log(done, stream)  # waits until the device has finished this step
        if plan.evaluates_at(done):
            reporter.evaluate(done)
        status = run.get_status(done, end, is_stopping)
        stops_early = status is not RunStatus.CONTINUE and done < end
        if plan.saves_at(done) or stops_early:
            reporter.save(done)
        if stops_early:
            break
    return done

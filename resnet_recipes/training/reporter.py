"""Log, evaluate and save a run."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor

from resnet_recipes.base.errors import Hint, TrainingError
from resnet_recipes.data.stream import Stream
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.run_folder.correct_images import CorrectImages
from resnet_recipes.run_folder.metrics import Metrics, StepMetrics
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.distributed import (
    average_over_ranks,
    broadcast_statistics,
    is_same_on_all_ranks,
    sum_over_ranks,
)
from resnet_recipes.training.evaluate import CutShortError, evaluate
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.precision import NOT_FINITE_FIX
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import collect_state, compute_parameter_sum, is_finite

#: Minimum compilation time that is recorded, in seconds.
MIN_COMPILATION_SECONDS = 0.1


class Heartbeat(Protocol):
    """Reports that this process is alive; see jobs.ranks.heartbeat."""

    step: int  # completed steps

    def beat(self, step: int, phase: str) -> None:
        """Report that `step` steps are done, and the phase that starts now."""


class RunReporter:
    """Logs, evaluates and saves one run. Every rank has a reporter; only rank 0 writes."""

    def __init__(
        self,
        run: Run,
        recorder: Recorder | None,
        checkpoints: Checkpoints | None,
        is_stop_requested: Callable[[], bool],
        heartbeat: Heartbeat,
    ):
        self.run, self.recorder, self.checkpoints = run, recorder, checkpoints
        self.is_stop_requested, self.heartbeat = is_stop_requested, heartbeat
        self._losses = torch.zeros(
            run.plan.steps(run.plan.recipe.log.interval), device=run.rank.device
        )
        self._count = 0  # losses since the last log; they stay on the device until the next
        self._logged_seconds = run.clock.seconds()  # training seconds at the last log
        self._logged_wait = 0.0  # seconds of waiting for data until the last log
        self._compilation_seconds = 0.0  # seconds of compilation recorded so far

    def step(self, done: int, losses: Tensor) -> None:
        """Record a completed step and its examples' losses; does not wait for the device."""
        torch.mean(losses, 0, out=self._losses[self._count])
        self._count += 1
        self.heartbeat.beat(done, "train")
        if self.recorder is not None:
            self.recorder.console.show_done(done)

    def log(self, done: int, stream: Stream) -> None:
        """Record the steps since the last call.

        Raises TrainingError, on every rank, if the loss is not finite. With float16, it
        raises only if the loss scale collapsed, and the mean omits losses that are not finite.
        """
        # this waits for the device
        losses = average_over_ranks(self._losses[: self._count].clone()).tolist()
        self.run.precision.check(losses, done)
        seconds = self.run.clock.seconds()
        waited = stream.waited
        span = max(seconds - self._logged_seconds, 1e-9)
        if self.recorder is not None:
            plan = self.run.plan
            finite = [loss for loss in losses if abs(loss) < float("inf")]
            metrics = StepMetrics(
                done,
                steps=len(losses),
                loss=sum(finite) / len(finite) if finite else float("nan"),
                lr=plan.lr_at(done - 1),
                pixels=plan.image_size_at(done - 1),
                training_seconds=seconds,
                images_per_second=len(losses) * plan.recipe.batch.global_size / span,
                data_wait_share=min(1.0, (waited - self._logged_wait) / span),
            )
            self.recorder.log_step(metrics)
            if (
                new_seconds := self.run.compilation.seconds() - self._compilation_seconds
            ) >= MIN_COMPILATION_SECONDS:
                self.recorder.log_compilation(done, new_seconds)
                self._compilation_seconds += new_seconds
        self._count, self._logged_seconds, self._logged_wait = 0, seconds, waited

    def evaluate(self, done: int) -> None:
        """Evaluate the EMA weights if the recipe uses EMA, else the raw weights; both at the end.

        At the end it also writes which images were classified correctly. If a stop is requested
        during an evaluation, nothing is recorded, and the resumed run evaluates again.
        """
        run, flip = self.run, self.run.plan.recipe.evaluation.flip

        def measure() -> tuple[Metrics, list[Tensor]]:
            correct: list[Tensor] = []  # flags of the images of each batch, on the device
            images = 0
            self._show_evaluating(done, images)

            def on_batch(outcomes: Outcomes) -> bool:
                nonlocal images
                correct.append(outcomes.predicted == outcomes.labels)
                images += len(outcomes.labels)  # of this rank; its size needs no synchronization
                self._show_evaluating(done, images)
                self.heartbeat.beat(done, "evaluate")
                return self.is_stop_requested()

            classes = run.plan.num_classes
            metrics = evaluate(run.model, run.eval_data, run.precision, classes, flip, on_batch)
            return metrics, correct

        # evaluation has two shapes, so a search would take longer than it saves
        torch.backends.cudnn.benchmark = False
        run.has_pending_evaluation = True
        with run.clock.pause(), suppress(CutShortError):
            start = time.perf_counter()
            with run.methods.eval_weights(run.model):
                metrics, correct = measure()
                best = run.best.with_evaluation(done, metrics, run.model)
            has_average = "eval_weights" in run.methods.group_by_hook()
            averaged, raw = (metrics, None) if has_average else (None, metrics)
            run.top1 = metrics.top1
            raw_start = time.perf_counter()
            if self._is_over(done):
                raw = raw or measure()[0]
                self._write_correct_images(correct)
            end = time.perf_counter()
            run.best, run.has_pending_evaluation = best, False  # the evaluation is complete
            if self.recorder is not None:
                self.recorder.log_evaluation(
                    done,
                    averaged=averaged,
                    raw=raw,
                    seconds=end - start,
                    raw_seconds=end - raw_start,
                    is_best=best.step == done,
                )

    def _show_evaluating(self, done: int, images: int) -> None:
        """Show the images read in an evaluation; every rank reads about as many."""
        if self.recorder is not None:
            total = self.run.eval_data.examples
            seen = min(total, images * self.run.rank.world_size)
            self.recorder.console.show_evaluating(done, seen, total)

    def _write_correct_images(self, correct: list[Tensor]) -> None:
        rank, images = self.run.rank, self.run.eval_data.examples
        flags = torch.zeros(images, dtype=torch.int32, device=rank.device)
        if correct:  # there may be fewer images than ranks
            flags[rank.rank :: rank.world_size] = torch.cat(correct).int()
        digits = map(str, sum_over_ranks(flags).tolist())
        if self.recorder is not None:
            digest = self.run.plan.facts.eval_digest
            self.recorder.write_correct_images(CorrectImages(digest, "".join(digits)))

    def save(self, done: int) -> None:
        """Save a checkpoint, after checking that all ranks have the same, finite weights.

        Raises TrainingError if they do not, and like `Checkpoints.save`.
        """
        self.heartbeat.beat(done, "save")
        with self.run.clock.pause():
            start = time.perf_counter()
            # every rank then checks the weights that rank 0 saves
            broadcast_statistics(self.run.model)
            if not is_same_on_all_ranks(compute_parameter_sum(self.run.model)):
                raise TrainingError(
                    f"the ranks hold different weights at step {done}, which was not saved: a "
                    "device or its memory is faulty",
                    Hint("resume from the last checkpoint on different hardware"),
                )
            if not is_finite(self.run.model):
                raise TrainingError(
                    f"weights or BatchNorm statistics are not finite numbers at step {done}, "
                    "which was not saved",
                    NOT_FINITE_FIX,
                )
            state = collect_state(self.run, done)  # on every rank: a method may gather its state
            if self.recorder and self.checkpoints:
                self.checkpoints.save(done, state, is_last=self._is_over(done))
                self.recorder.log_checkpoint(
                    done, self.checkpoints.folder, time.perf_counter() - start
                )

    def _is_over(self, done: int) -> bool:
        """Return whether the weights after `done` steps are the run's result."""
        return done == self.run.plan.total_steps or self.run.has_reached_target

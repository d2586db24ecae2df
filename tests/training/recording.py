"""Train a run and record its losses and states, for tests that compare two trainings."""

from typing import Any

import torch

from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import collect_state

#: All methods of Hot, sized for a run of eight steps, with a SAM step every third step.
HOT = (
    "methods.bce_loss={} methods.blurpool={} methods.stochastic_depth.drop_rate=0.1 "
    "methods.colout.p_row=0.05 methods.colout.p_col=0.05 methods.randaugment.severity=10 "
    "methods.randaugment.depth=1 methods.progressive_resizing.initial_scale=0.5 "
    "methods.progressive_resizing.delay=0.2dur methods.progressive_resizing.finetune=0.2dur "
    "methods.label_smoothing.smoothing=0.13 methods.mixup.alpha=0.25 methods.sam.rho=0.5 "
    "methods.sam.interval=3 methods.ema.half_life=3ba methods.ema.update_interval=2ba"
)


class RecordingReporter:
    """A reporter that records losses and the state after given steps, and can stop the run."""

    def __init__(self, run: Run, stop_at: int = 0, keep: tuple[int, ...] = ()):
        self.run, self.stop_at, self.keep, self.states = run, stop_at, keep, {}
        self.losses, self.logged, self.evaluated, self.saved = [], [], [], []

    def is_stop_requested(self) -> bool:
        return bool(self.stop_at) and len(self.losses) + 1 >= self.stop_at

    def step(self, done: int, losses: torch.Tensor) -> None:
        self.losses.append(losses.mean())
        if done in self.keep:
            self.states[done] = copy_state(collect_state(self.run, done))

    def log(self, done: int, stream: object) -> None:
        self.logged.append(done)

    def evaluate(self, done: int) -> None:
        self.evaluated.append(done)

    def save(self, done: int) -> None:
        self.saved.append(done)


def copy_state(state: Any) -> Any:
    """Return a copy of a state that shares no memory with its run, as if read from a file."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: copy_state(value) for key, value in state.items()}
    return [copy_state(value) for value in state] if isinstance(state, list | tuple) else state


def find_differing_tensors(ours: Run, theirs: Run) -> list[str]:
    """Return the names of tensors (weights, statistics, momentum, averages) that differ."""
    pairs = []
    for run in (ours, theirs):
        state = collect_state(run, 0)
        momenta = {
            f"momentum.{i}": value["momentum_buffer"]
            for i, value in state["optimizer"]["state"].items()
        }
        pairs.append({**state["model"], **momenta, **state["methods"]})
    assert pairs[0].keys() == pairs[1].keys()
    return [key for key in pairs[0] if not torch.equal(pairs[0][key], pairs[1][key])]


def record(run: Run, first: int = 0, **options: Any) -> RecordingReporter:
    recording = RecordingReporter(run, **options)
    train(run, recording, first)
    return recording

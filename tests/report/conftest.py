"""A manually written run of four epochs with two image sizes."""

from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes.base.duration import Recurrence
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.run_folder.facts import PublishedResult, RunFacts
from resnet_recipes.run_folder.metrics import Metrics, StepMetrics
from resnet_recipes.run_folder.summary import WeightFiles


@pytest.fixture
def facts(tmp_path):
    """Facts of four epochs of ten steps of 100 images, two at 64 px and two at 128 px."""
    published = (
        PublishedResult(70.0, 2),
        PublishedResult(76.6, 5, 27, "8 x A100", "the paper"),
        PublishedResult(80.0),
    )
    return RunFacts(
        recipe="mild",
        folder=tmp_path,
        total_steps=40,
        steps_per_epoch=10,
        global_size=100,
        flops=(2 * 10**15, 2 * 10**15, 8 * 10**15, 8 * 10**15),
        evaluations=Recurrence(10, 40),
        devices="CPU, 2 cores",
        published=published,
    )


@pytest.fixture
def console():
    return Mock()


@pytest.fixture
def recorder(facts, console):
    with closing(Recorder(facts, console)) as recorder:
        yield recorder


class TrainingSimulator:
    """Simulate the training loop: steps take 1 s at 64 px, 4 s at 128 px, and 2 s in epoch 0.

    Every step is logged.
    """

    def __init__(self, recorder):
        self.recorder, self.seconds = recorder, 0.0

    def run(self, first, last):
        """Train steps first..last-1, with an evaluation and a checkpoint after each epoch."""
        for step in range(first, last):
            pixels = 64 if step < 20 else 128
            cost = 2.0 if step < 10 else 1.0 if pixels == 64 else 4.0
            self.seconds += cost
            wait = 0.5 if step < 10 else 0.0
            progress = StepMetrics(step + 1, 1, 1.0, 0.5, pixels, self.seconds, 100 / cost, wait)
            self.recorder.log_step(progress)
            if (step + 1) % 10 == 0:
                metrics = Metrics(50.0 + step, 90.0, 1.5, 500)
                self.recorder.log_evaluation(
                    step + 1,
                    averaged=metrics,
                    raw=metrics._replace(top1=metrics.top1 - 1),
                    seconds=3.0,
                    raw_seconds=1.0,
                )
                self.recorder.log_checkpoint(step + 1, Path("last.pt"), 0.25)


@pytest.fixture
def simulator(recorder):
    return TrainingSimulator(recorder)


@pytest.fixture
def summary(recorder, simulator):
    recorder.begin()
    simulator.run(0, 40)
    return recorder.finish(40, simulator.seconds, WeightFiles(Path("weights.safetensors")))

"""Several ranks measure like one, save no diverged weights, and resume bit-identically."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes import ops
from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data.base import DataFacts
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.jobs.ranks import prepare
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.jobs.train import run_task
from resnet_recipes.network import about
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.network_facts import Teacher
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.run_folder.metrics import filter_kind, read_metrics
from resnet_recipes.run_folder.summary import time_epochs
from resnet_recipes.training import all_reduce, distributed
from resnet_recipes.training.reporter import RunReporter
from tests.data.loaders import requires_decoder
from tests.jobs.small_runs import copy_as_killed, read_state
from tests.shared.checks import get_error
from tests.shared.images import create_random_images
from tests.shared.plans import make_recipe
from tests.shared.run_folders import create_unstarted_run

pytestmark = pytest.mark.slow


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that creates the folder of a run of six steps, saved after three."""

    def make(arguments: str = "", **changes: Any) -> Path:
        small = (
            "max_duration=6ba checkpoint.interval=3ba evaluation.interval=1dur schedule.warmup=0ba "
            "data.train_size=32 data.eval_resize=32 data.eval_size=32 batch.global_size=12 "
            "batch.bn_size=4"
        )
        return create_unstarted_run(
            Path(tempfile.mkdtemp(dir=tmp_path)), make_recipe(f"{small} {arguments}", **changes)
        )

    return make


def find_differing(run: Path, other: Path) -> list[str]:
    """Return the names of weights and statistics that are not bit-identical in two runs."""
    weights = load_file(run / "weights.safetensors")
    others = load_file(other / "weights.safetensors")
    return [name for name in weights if not torch.equal(weights[name], others[name])]


def train_rank(process: RankProcess) -> int:
    """Run a rank with small gradient buckets, so that a small model has several."""
    all_reduce.BUCKET_BYTES = 30_000
    return run_task(process)


def train_fused(process: RankProcess) -> int:
    """Run a rank with the operations for GPUs, in their CPU implementation.

    Returns the number of calls.
    """
    on_cpus = set(ops.Operations._fields) - {"notes"}
    chosen = ops.Operations(**{name: getattr(ops, name).fused for name in on_cpus})
    normalize = Mock(side_effect=chosen.batch_norm)
    ops.choose = lambda *_: chosen._replace(batch_norm=normalize)
    assert run_task(process) == 0
    return normalize.call_count


def train_with_flipped_bit(process: RankProcess) -> str:
    """Run a rank; before the first checkpoint, one bit of a weight flips on rank 1.

    Returns the error.
    """
    save = RunReporter.save

    def flip_and_save(self: RunReporter, done: int) -> None:
        if process.rank == 1:
            with torch.no_grad():
                self.run.model.layer2[0].conv2.weight.view(torch.int32)[1, 2, 0, 1] ^= 1
        save(self, done)

    RunReporter.save = flip_and_save
    return str(get_error(TrainingError, run_task, process))


def test_flipped_bit_stops_all_ranks_before_saving(launcher, new_run):
    folder = new_run()
    errors = launcher.call(folder, 3, train_with_flipped_bit)
    assert all(error.startswith("the ranks hold different weights at step 3, ") for error in errors)
    assert not list((folder / "checkpoints").iterdir())
    assert not (folder / "weights.safetensors").exists()


def test_three_ranks_with_teacher_resume_bit_identically(launcher, new_run, make_run, tmp_path):
    """Two ranks would always add in the same order.

    Three do so only while the layout of the buckets stays the same.
    """
    teacher_run = make_run("seed=5")
    teacher = tmp_path / "teacher.safetensors"
    facts = teacher_run.plan.facts
    write_weights(
        teacher_run.model, teacher, about.describe(teacher_run.plan.recipe, facts.classes, 10)
    )
    whole = new_run(
        f"methods.distill.teacher={teacher} methods.sam.interval=2 methods.mixup={{}} "
        "methods.ema.half_life=2ba"
    )
    launcher.call(whole, 3, train_rank)
    resumed = copy_as_killed(3, whole)
    launcher.call(resumed, 3, train_rank)
    assert find_differing(resumed, whole) == []


def test_two_ranks_with_fused_operations_resume_bit_identically(launcher, new_run):
    """Every save compares the weights of the ranks, and would fail."""
    changes = (
        "data.train_size=64 data.eval_resize=64 data.eval_size=64 optimizer.lr=0.01 "
        "batch.global_size=16 batch.bn_size=8 methods.blurpool={} methods.bce_loss={} "
        "methods.label_smoothing={} methods.mixup={}"
    )
    plain = new_run(changes)
    whole = new_run(changes)
    launcher.call(plain, 2, train_rank)
    assert all(calls >= 6 * 6 for calls in launcher.call(whole, 2, train_fused))
    resumed = copy_as_killed(3, whole)
    launcher.call(resumed, 2, train_fused)
    assert find_differing(resumed, whole) == []
    expected, actual = (load_file(run / "weights.safetensors") for run in (plain, whole))
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-3, atol=1e-4)


def test_float16_resumes_bit_identically(launcher, new_run):
    # tests/shared/forks.py replaces resnet34 by a narrow ResNet-18
    whole = new_run(
        "precision.dtype=fp16 batch.global_size=8 batch.bn_size=4 data.train_size=16 "
        "data.eval_resize=16 data.eval_size=16 model.name=resnet34"
    )
    launcher.call(whole, 2, train_rank)
    resumed = copy_as_killed(3, whole)
    launcher.call(resumed, 2, train_rank)
    assert read_state(whole, 3)["precision"]["scale"] < 2**16  # the scale started at 2**16
    assert read_state(resumed, 6)["precision"] == read_state(whole, 6)["precision"]
    assert find_differing(resumed, whole) == []


def train_with_local_images(process: RankProcess) -> str:
    """Train with images on this rank's own disk; some are missing on rank 1."""
    read = DataFacts.read
    DataFacts.read = lambda *named: replace(read(*named), train_examples=128 - process.rank)
    return str(get_error(NotReadyError, run_task, process))


def train_with_later_version(process: RankProcess) -> str:
    """Train with fetched images; rank 1 got a later version."""
    copy = process.folder / f"version{process.rank}"
    copy.mkdir()
    (copy / "labels.csv").touch()
    local = copy / "labels.csv" if process.rank else copy
    prepare.data.fetch = lambda config, *_: replace(config, root=str(local))
    return str(get_error(NotReadyError, run_task, process))


def train_with_other_teacher(process: RankProcess) -> str:
    teacher = Teacher(Mock(), "", "methods.distill.teacher", f"{process.rank}")
    prepare.make_plan = lambda *arguments: replace(make_plan(*arguments), teachers=(teacher,))
    return str(get_error(NotReadyError, run_task, process))


def train_without_gpu(process: RankProcess) -> str:
    """Train on a GPU, which torch cannot use on the node of rank 1."""
    read_rank = distributed.read_rank
    distributed.read_rank = lambda *arguments: replace(
        read_rank(*arguments), device=torch.device("cpu" if process.rank else "cuda")
    )
    return str(get_error(NotReadyError, run_task, process))


@pytest.mark.parametrize(
    ("differing", "message"),
    [
        (train_with_local_images, "number of training images is 128 on rank 0, but 127 on rank 1"),
        (train_with_later_version, "fetched images is version0 on rank 0, but version1 on rank 1"),
        (train_with_other_teacher, "methods.distill.teacher is 0 on rank 0, but 1 on"),
        # they would wait for each other for half an hour, one in NCCL and one in gloo
        (train_without_gpu, "device is cuda on rank 0, but cpu on rank 1"),
    ],
)
def test_ranks_reject_other_images_teachers_or_devices(differing, message, launcher, new_run):
    messages = launcher.call(new_run("batch.global_size=8 batch.bn_size=4"), 2, differing)
    assert all(message in text for text in messages), messages


def test_run_crashed_after_its_target_ends_on_resume(launcher, new_run):
    whole = new_run("evaluation.interval=3ba evaluation.stop_at_top1=1.0")
    launcher.call(whole, 3, train_rank)
    crashed = copy_as_killed(3, whole)
    shutil.copy(whole / "metrics.jsonl", crashed)
    launcher.call(crashed, 3, train_rank)
    first, second = (
        json.loads((folder / "summary.json").read_text()) for folder in (whole, crashed)
    )
    assert second["steps"] == first["steps"] == 3
    assert second["raw_top1_percent"] == first["raw_top1_percent"]
    assert second["mlperf_seconds"] == first["mlperf_seconds"]
    assert find_differing(crashed, whole) == []


def test_timed_parts_of_run_write_no_results(launcher, new_run):
    folder = new_run("max_duration=5ep batch.global_size=64 batch.bn_size=32")
    (folder / "task.json").write_text('{"task": "train", "spans": [[0, 2], [2, 4], [6, 8]]}')
    records = read_metrics(launcher.train(folder, 2) / "metrics.jsonl")
    assert [record["step"] for record in filter_kind(records, "step")] == [2, 4, 8]
    seconds = time_epochs(records, 2)
    assert list(seconds) == [0, 1, 3]
    assert min(seconds.values()) > 0
    assert not any(folder.glob("weights*"))
    assert not (folder / "summary.json").exists()


@requires_decoder
def test_run_in_memory_equals_run_on_raw_beton(launcher, new_run, tmp_path):
    """The native decoder augments; validation images are also shrunk."""
    images = create_random_images(tmp_path / "images", train=3)
    raw = tmp_path / "raw"
    convert(images, raw, ConvertOptions("raw", max_resolution=30, shuffle=False), do_nothing)
    changes = (
        "data.train_size=24 data.eval_resize=24 data.eval_size=24 batch.bn_size=6 "
        "methods.randaugment={}"
    )
    in_memory = f"{changes} data.backend=torchvision data.root={images} data.memory_pixels=30"
    on_disk = new_run(f"{changes} data.backend=ffcv data.root={raw}")
    memory_run = new_run(in_memory)
    other = new_run(in_memory.replace("data.memory_pixels=30", "data.memory_pixels=29"))
    for run in (on_disk, memory_run, other):
        launcher.call(run, 2, train_rank)
    resumed = copy_as_killed(3, memory_run)
    launcher.call(resumed, 2, train_rank)
    assert find_differing(memory_run, on_disk) == find_differing(resumed, on_disk) == []
    assert find_differing(other, on_disk) != []
    losses = [
        [
            record["raw_loss"]
            for record in filter_kind(read_metrics(run / "metrics.jsonl"), "evaluation")
        ]
        for run in (on_disk, memory_run, resumed)
    ]
    assert losses[0] == losses[1] == losses[2] != []

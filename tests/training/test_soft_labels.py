"""Training with a teacher's soft labels matches training with the teacher."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.data import crop
from resnet_recipes.data.soft_labels import make_header, map_soft_labels, open_for_writing
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.jobs.teach import run_task
from resnet_recipes.methods import ORDER, Distill, MixUp
from resnet_recipes.network import about
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.teachers import describe_file, describe_images, make_cycle
from resnet_recipes.run_folder import TASK
from resnet_recipes.training.build import build, open_rank_images
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import StepReporter, train
from resnet_recipes.training.run import Run
from resnet_recipes.training.soft_labels import write_soft_labels
from resnet_recipes.training.state import collect_state, compute_parameter_sum, restore
from tests.shared.checks import get_error
from tests.shared.disk_faults import flip_bit
from tests.shared.images import CLASSES, create_random_images
from tests.shared.plans import make_recipe, plan_recipe
from tests.shared.run_folders import create_unstarted_run
from tests.shared.tables import parse_rows

#: Two epochs of three steps plus a few images, at two sizes if images grow.
IMAGES, STEPS = 30, 6
RESIZED = (
    "methods.progressive_resizing.stairs=[[0ep,0.5],[1ep,1.0]] "
    "methods.progressive_resizing.delay=0.5dur methods.label_smoothing.smoothing=0.1"
)


@pytest.fixture(scope="module")
def taught_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of which a teacher's outputs are stored."""
    return create_random_images(tmp_path_factory.mktemp("taught"), train=IMAGES // len(CLASSES))


@pytest.fixture
def make_teacher_arguments(
    taught_images: Path, make_run: Callable, tmp_path: Path
) -> Callable[..., str]:
    path = tmp_path / "teacher.safetensors"
    base = (
        f"data.root={taught_images} data.backend=torchvision data.workers=0 data.seed=3 "
        "batch.global_size=8 batch.bn_size=8 methods.distill.temperature=2.0"
    )
    write_teacher(make_run(f"{base} seed=5 methods.distill=null"), path)

    def make(labels: Path | None = None, arguments: str = "") -> str:
        source = f"labels={labels}" if labels else f"teacher={path}"
        return f"{base} methods.distill.{source} {arguments}"

    return make


def write_teacher(run: Run, path: Path) -> None:
    write_weights(run.model, path, about.describe(run.plan.recipe, CLASSES, len(CLASSES)))


def write_soft_labels_file(
    plan: Plan, path: Path, classes: int = 10, ranks: int = 1, cycle: int = 0, stop: int = 999
) -> Path:
    """Write a plan's teacher outputs as `resnet-recipes teach` does, but only `stop` batches."""
    metadata = describe_file(plan, cycle, "cpu")
    plan = make_cycle(plan, cycle)
    shape = len(plan.image_sizes), plan.recipe.data.repeats, plan.facts.train_examples, classes
    open_for_writing(path, *make_header(metadata, shape, len(CLASSES))).close()
    outputs = map_soft_labels(path, "r+")[0]
    progress = Mock()
    complete = [
        write_soft_labels(
            plan,
            Rank(number, ranks, torch.device("cpu")),
            outputs,
            progress,
            lambda: progress.call_count >= stop,
        )
        for number in reversed(range(ranks))  # rank 0 records which epochs are complete
    ]
    done = [call.args for call in progress.call_args_list]
    assert all(0 < count <= total for count, total in done)
    is_complete = stop == 999
    if is_complete:
        count, total = done[-1]
        assert count == total
    assert complete == [is_complete] * ranks
    return path


@pytest.fixture
def store_outputs(make_teacher_arguments: Callable, tmp_path: Path) -> Callable[..., Path]:
    def make(
        arguments: str = "", name: str = "two", classes: int = 2, ranks: int = 1, **how: int
    ) -> Path:
        plan = plan_recipe(make_teacher_arguments(arguments=arguments), ranks)
        return write_soft_labels_file(plan, tmp_path / f"{name}.safetensors", classes, ranks, **how)

    return make


def train_and_digest(run: Run, first: int = 0, stop_at: int | None = None) -> torch.Tensor:
    reporter = Mock(spec=StepReporter)
    reporter.is_stop_requested.side_effect = lambda: reporter.step.call_count + 1 + first == stop_at
    train(run, reporter, first)
    return compute_parameter_sum(run.model)


@pytest.mark.parametrize(
    ("ranks", "arguments"),
    parse_rows(
        f"""
1 | {RESIZED}
2 | {RESIZED}
1 | {RESIZED} methods.progressive_resizing.at=loader
2 | data.repeats=3 methods.randaugment={{}}
1 | methods.mixup={{}}
2 | data.repeats=2 methods.cutmix={{}}
1 | {RESIZED} methods.mixup_or_cutmix={{}}
"""
    ),
)
def test_run_with_all_outputs_matches_teacher_run(
    make_teacher_arguments, make_run, store_outputs, monkeypatch, ranks, arguments
):
    # a teacher in every step that gets images before mixing, as in `teach`
    others = [method for method in ORDER if method is not Distill]
    others.insert(others.index(MixUp), Distill)
    monkeypatch.setattr("resnet_recipes.methods.stack.ORDER", others)
    plan = plan_recipe(make_teacher_arguments(arguments=arguments), int(ranks))
    assert plan.image_sizes == ((16, 32) if "progressive_resizing" in arguments else (32, 32))
    path = store_outputs(arguments, classes=10, ranks=int(ranks))
    learned = train_and_digest(make_run(make_teacher_arguments(path, arguments)))
    assert torch.equal(
        learned, train_and_digest(make_run(make_teacher_arguments(arguments=arguments)))
    )
    half, rest = (make_run(make_teacher_arguments(path, arguments)) for _ in range(2))
    train_and_digest(half, stop_at=STEPS // 2 + 1)
    restore(rest, collect_state(half, STEPS // 2 + 1))
    assert torch.equal(train_and_digest(rest, first=STEPS // 2 + 1), learned)


LEFT_OVER = "batch.global_size=29 batch.bn_size=29 schedule.warmup=1ba"


@pytest.mark.parametrize(
    ("taught_with", "arguments"),
    [
        (LEFT_OVER, LEFT_OVER),
        ("", "seed=7 batch.global_size=4 batch.bn_size=4"),
    ],
    ids=["an image that is left over is computed alone", "runs of other seeds and batches"],
)
def test_soft_labels_serve_other_batches_and_seeds(
    taught_with, arguments, make_teacher_arguments, make_run, store_outputs
):
    path = store_outputs(taught_with, classes=10)
    learned = train_and_digest(make_run(make_teacher_arguments(path, arguments)))
    assert torch.equal(
        learned, train_and_digest(make_run(make_teacher_arguments(arguments=arguments)))
    )


def test_rank_waits_until_all_outputs_are_written(store_outputs, tmp_path, monkeypatch):
    path = tmp_path / "two.safetensors"
    missing = []
    name = "resnet_recipes.training.soft_labels.wait_for_ranks"
    monkeypatch.setattr(
        name, lambda: missing.append(map_soft_labels(path)[0].find_missing_epochs())
    )
    store_outputs()
    assert missing == [[0, 1], []]


def test_omitted_last_soft_label_is_the_remainder(make_teacher_arguments, make_run, store_outputs):
    most = len(CLASSES) - 1
    results = []
    for name, count in (("most", most), ("all", most + 1)):
        path = store_outputs(name=name, classes=count)
        results.append(next(iter(make_run(make_teacher_arguments(path)).train_data.batches())))
    raw, exact = results
    assert torch.equal(raw.pixels, exact.pixels)
    assert raw.soft_labels.sum(1).tolist() == pytest.approx([1] * 8, abs=1e-5)
    # the last output is the remainder, so that only float16 rounding differs
    torch.testing.assert_close(raw.soft_labels, exact.soft_labels, rtol=0, atol=2e-3)
    assert not torch.equal(raw.soft_labels, exact.soft_labels)


def test_repeated_epochs_use_the_same_crops(make_teacher_arguments, make_run, store_outputs):
    path = store_outputs(RESIZED, cycle=1)
    run = make_run(make_teacher_arguments(path, RESIZED))
    batches = run.train_data.batches()
    seen = []
    for _ in range(STEPS):
        raw = next(batches)
        seen += zip(raw.labels.tolist(), raw.pixels.clone(), raw.soft_labels.clone(), strict=True)
    first = seen[: len(seen) // 2]
    second = seen[len(seen) // 2 :]
    again = [
        (labels, other_labels)
        for _, pixels, labels in first
        for _, other_pixels, other_labels in second
        if torch.equal(pixels, other_pixels)
    ]
    assert len(again) > len(first) // 2
    assert all(torch.equal(*pair) for pair in again)


@pytest.fixture
def explain_plan_rejection(make_teacher_arguments: Callable) -> Callable[..., str]:
    def explain_rejection(error: type[Exception], labels: Path, arguments: str = "") -> str:
        caught = get_error(error, plan_recipe, make_teacher_arguments(labels, arguments))
        return " ".join(f"{problem.key} {problem}" for problem in caught.problems)

    return explain_rejection


def test_soft_labels_reject_other_crops_with_their_values(store_outputs, explain_plan_rejection):
    other = (
        "methods.randaugment={} methods.colout={} data.crop_scale=[0.5,1.0] data.seed=4 "
        "max_duration=3ep"
    )
    message = explain_plan_rejection(RecipeError, store_outputs(RESIZED), other)
    for text in (
        "two.safetensors was made with [0.08,1.0]",
        "'data.crop_scale=[0.08,1.0]'",
        "two.safetensors was made with 3",
        "two.safetensors was made with 2",
        "methods.randaugment={depth:1,severity:10.0,",
        "two.safetensors was made without it",
        "'~methods.randaugment'",
        "methods.colout changes the images of each batch",
        "'~methods.colout'",
        "two.safetensors was made with {mode:",
    ):
        assert text in message, message


def test_run_with_other_image_size_is_rejected(
    make_teacher_arguments, store_outputs, explain_plan_rejection
):
    path = store_outputs()
    shrunk = "data.memory_pixels=64"
    assert f"{shrunk}: {path} was made with 0" in explain_plan_rejection(RecipeError, path, shrunk)
    rewrite_soft_labels(path, {"data.memory_pixels": "64"})
    plan_recipe(make_teacher_arguments(path, shrunk))


def test_soft_labels_reject_run_that_resizes_in_loader(store_outputs, explain_plan_rejection):
    other = f"{RESIZED} methods.progressive_resizing.at=loader"
    message = explain_plan_rejection(RecipeError, store_outputs(RESIZED), other)
    assert "at:loader" in message
    assert "at:device" in message


def test_soft_label_description_contains_every_crop_setting(make_teacher_arguments):
    settings = set(re.findall(r"\bconfig\.(\w+)", Path(crop.__file__).read_text()))
    assert {"flip", "crop_scale", "seed"} < settings
    described = describe_images(plan_recipe(make_teacher_arguments()), 0)
    assert {f"data.{name}" for name in settings} <= described.keys()


def rewrite_soft_labels(path: Path, description: dict[str, str], **tensors: torch.Tensor) -> None:
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    save_file(load_file(path) | tensors, path, metadata | description)


DAMAGE = [
    ("damaged or incomplete", lambda path: path.write_bytes(path.read_bytes()[:-8])),
    ("damaged or incomplete", lambda path: path.write_bytes(path.read_bytes() + b"more")),
    ("not a .safetensors file", lambda path: path.write_bytes(b"\x80\x04K\x01.")),
    ("not a .safetensors file", lambda path: path.write_bytes(b"\xff" * 9)),
    ("not a .safetensors file", lambda path: flip_bit(path, 9)),
    ("was changed after it was written", lambda path: flip_bit(path, -3)),
    ("did not write it", lambda path: save_file({"rows": torch.zeros(2, 1, 9)}, path)),
    ("did not write it", lambda path: save_file(load_file(path), path)),
    ("did not write it", lambda path: save_file(load_file(path), path, {"teacher": "a"})),
    ("or another version did", lambda path: rewrite_soft_labels(path, {"data.new": "1"})),
    (
        "did not write it",
        lambda path: rewrite_soft_labels(path, {}, values=torch.zeros(2).bfloat16()),
    ),
    ("to these images", lambda path: rewrite_soft_labels(path, {}, sha256=torch.tensor(0))),
    ("Not a regular file", lambda path: path.unlink() or os.mkfifo(path)),
    ("No such file", Path.unlink),
]


@pytest.mark.parametrize(("message", "damage"), DAMAGE)
def test_damaged_soft_labels_are_rejected_before_first_step(
    store_outputs, explain_plan_rejection, damage, message
):
    path = store_outputs()
    damage(path)
    results = explain_plan_rejection(NotReadyError, path)
    for part in (message, "methods.distill.labels", "try:   resnet-recipes teach NAME"):
        assert part in results


def test_soft_labels_are_readable_as_safetensors(store_outputs):
    results = load_file(store_outputs(classes=9))
    assert results["values"].shape == results["classes"].shape == (2, 1, IMAGES, 9)
    assert results["values"].dtype == torch.float16
    assert results["classes"].max() == len(CLASSES) - 1


def test_metadata_is_quoted_in_suggested_commands(
    make_teacher_arguments, store_outputs, explain_plan_rejection
):
    path = store_outputs()
    rewrite_soft_labels(path, {"data.seed": "$(reboot)", "data.flip": "0"})
    error = get_error(RecipeError, plan_recipe, make_teacher_arguments(path))
    lines = [line for problem in error.problems for line in problem.lines()]
    assert lines[1::2] == ["use:   data.flip=0", "use:   'data.seed=$(reboot)'"]
    rewrite_soft_labels(path, {"$(reboot)": "1"})
    assert "reboot" not in explain_plan_rejection(NotReadyError, path)


def test_plan_describes_size_and_repetition_of_outputs(make_teacher_arguments, store_outputs):
    (teacher,) = plan_recipe(make_teacher_arguments(store_outputs(cycle=1))).teachers
    message = r"2 of each image, [\d.]+ kB; crops repeat after 1 epoch,"
    assert re.search(message, teacher.text)


def test_interrupted_soft_labels_are_completed_bit_identically(store_outputs):
    complete = store_outputs().read_bytes()  # 4 batches per epoch
    part = store_outputs(name="part", stop=5)
    assert map_soft_labels(part)[0].find_missing_epochs() == [1]
    assert store_outputs(name="part").read_bytes() == complete


@pytest.fixture
def replace_teacher(make_teacher_arguments, make_run, tmp_path) -> Callable[[], None]:
    """Return a function that replaces the teacher with another network of the same kind."""
    run = make_run(make_teacher_arguments(arguments="seed=6"))
    return lambda: write_teacher(run, tmp_path / "teacher.safetensors")


@pytest.mark.parametrize("arguments", ["", "precision.dtype=bf16"])
def test_partial_soft_labels_reject_another_teacher_or_dtype(
    store_outputs, replace_teacher, arguments
):
    part = store_outputs(stop=5)
    before = part.read_bytes()
    if not arguments:
        replace_teacher()
    with pytest.raises(NotReadyError, match="other settings or another teacher"):
        store_outputs(arguments)
    assert part.read_bytes() == before


def test_soft_labels_serve_runs_of_another_dtype(make_teacher_arguments, store_outputs):
    path = store_outputs()
    assert (
        plan_recipe(make_teacher_arguments(path, "precision.dtype=bf16"))
        .teachers[0]
        .soft_labels.path
        == path
    )


def explain_rejected_rank(process: RankProcess) -> str:
    """Return why this rank does not start."""
    return str(get_error(NotReadyError, run_task, process))


@pytest.fixture
def explain_teaching(make_teacher_arguments, launcher) -> Callable[[Path], str]:
    """Return a function that returns why a rank does not complete a file of soft labels."""

    def explain(path: Path) -> str:
        folder = create_unstarted_run(path.parent / "run", make_recipe(make_teacher_arguments()))
        (folder / TASK).write_text(json.dumps({"task": "teach", "part": str(path), "cycle": 0}))
        (message,) = launcher.call(folder, 1, explain_rejected_rank)
        return message

    return explain


def test_rank_rejects_teacher_replaced_after_start(
    store_outputs, replace_teacher, explain_teaching
):
    path = store_outputs(stop=1)
    replace_teacher()
    message = explain_teaching(path)
    assert message.startswith("methods.distill.teacher was replaced after it was checked")
    assert map_soft_labels(path)[0].find_missing_epochs() == [0, 1]


@pytest.mark.parametrize("content", [None, b"{"])
def test_rank_rejects_unreadable_labels(store_outputs, explain_teaching, content):
    path = store_outputs(stop=1)
    path.write_bytes(content) if content else path.unlink()
    assert explain_teaching(path).startswith(f"{path} cannot be read: ")


def test_run_rejects_teacher_replaced_after_plan(make_teacher_arguments, replace_teacher):
    plan = plan_recipe(make_teacher_arguments())
    replace_teacher()
    with pytest.raises(NotReadyError, match="was replaced after it was checked"):
        build(plan, Rank(0, 1, torch.device("cpu")))


def test_loader_rejects_labels_replaced_after_plan(
    make_teacher_arguments, store_outputs, replace_teacher
):
    path = store_outputs()
    rank = Rank(0, 1, torch.device("cpu"))
    plan = plan_recipe(make_teacher_arguments(path))
    open_rank_images(plan, rank, plan.new_stack()).close()
    path.unlink()
    replace_teacher()
    store_outputs()
    with pytest.raises(NotReadyError, match="was replaced after it was checked"):
        open_rank_images(plan, rank, plan.new_stack())

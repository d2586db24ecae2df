"""Distillation against a loop in the test, and in runs."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from resnet_recipes.base.errors import NotReadyError, RecipeError, TrainingError
from resnet_recipes.base.text import escape_controls
from resnet_recipes.data.base import normalize
from resnet_recipes.methods.base import Batch
from resnet_recipes.methods.distill import Distill
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network import about
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.network_facts import count_teacher_flops
from resnet_recipes.planning.predictions import estimate_gpu_memory
from resnet_recipes.training.gradient import GradientComputer
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import collect_state, compute_parameter_sum, restore
from tests.methods.inputs import make_batch, make_now
from tests.shared.checks import get_error, get_problem
from tests.shared.plans import plan_recipe
from tests.training.recording import record

#: Values that the settings must reject.
WRONG = {
    "teacher": ["torchvision", "timm:"],
    "labels": ["runs/best"],
    "temperature": [0.0, -1.0],
    "share": [-0.1, 1.1],
}


def compute_softmax(row: list[float], temperature: float) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 1.0), (4.0, 0.3), (0.5, 0.0)])
def test_distill_loss_matches_manual_loop(temperature, share):
    torch.manual_seed(0)
    logits = torch.randn(5, 4)
    theirs = torch.randn(5, 4)
    targets = torch.rand(5, 4).softmax(1)
    soft_labels = torch.softmax(theirs / temperature, 1)
    batch = Batch(logits, targets, targets.argmax(1), soft_labels=soft_labels)
    method = Distill(temperature=temperature, share=share)
    actual = Stack({"distill": method}).losses(logits, batch)
    for row, teacher, target, loss in zip(
        *(tensor.tolist() for tensor in (logits, theirs, targets, actual)), strict=True
    ):
        label_loss = -sum(
            t * math.log(p) for t, p in zip(target, compute_softmax(row, 1), strict=True)
        )
        pairs = zip(
            compute_softmax(teacher, temperature), compute_softmax(row, temperature), strict=True
        )
        apart = sum(p * math.log(p / q) for p, q in pairs)
        assert loss == pytest.approx(
            (1 - share) * label_loss + share * temperature**2 * apart, rel=1e-4, abs=1e-6
        )


def test_teacher_sees_network_images_in_parts():
    method = Distill()
    seen = []
    batch = make_batch(300, size=2)
    method.take_network(lambda images: seen.append(images) or images.mean((2, 3)))
    changed = method.transform_batch(batch, make_now())
    assert [len(images) for images in seen] == [128, 128, 44]
    assert torch.equal(changed.soft_labels, batch.images.mean((2, 3)).softmax(1))
    assert [len(part.soft_labels) for part in changed.split(3)] == [100, 100, 100]


@pytest.fixture
def teacher(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """The weights of a second network, with different random weights."""
    run = make_run("seed=5")
    path = tmp_path / "teacher.safetensors"
    write_weights(run.model, path, about.describe(run.plan.recipe, run.plan.facts.classes, 10))
    return path


def make_methods(teacher: object, **others: dict) -> dict[str, dict]:
    return {"distill": {"teacher": str(teacher), "temperature": 2.0}, **others}


def get_teacher(method: Distill) -> nn.Module:
    return inspect.getclosurevars(inspect.unwrap(method._compute_logits)).nonlocals["model"]


def train_to_digest(run: Run) -> torch.Tensor:
    record(run)
    return compute_parameter_sum(run.model)


def test_teacher_is_frozen_and_network_approaches_it(teacher, make_run):
    run = make_run("max_duration=4ba", methods=make_methods(teacher))
    (method,) = run.methods
    model = get_teacher(method)
    before = compute_parameter_sum(model)
    train_to_digest(run)
    assert not model.training
    assert torch.equal(compute_parameter_sum(model), before)
    plain = make_run("max_duration=4ba")
    assert not torch.equal(train_to_digest(plain), compute_parameter_sum(run.model))


def test_teacher_is_folded_and_cast_once(teacher, make_run):
    run = make_run("precision.dtype=bf16", methods=make_methods(teacher))
    (method,) = run.methods
    model = get_teacher(method)
    logits = method._compute_logits
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    images = torch.randn(4, 3, 32, 32)
    whole = load(teacher).model.eval()
    torch.testing.assert_close(logits(images), whole(images), rtol=0.02, atol=0.02)


def test_teacher_gets_its_own_normalization(teacher, make_run):
    """The teacher gets pixels normalized as in its own evaluation, not as in the run."""
    run = make_run(
        "data.mean=[127.5,127.5,127.5] data.std=[51,51,51]", methods=make_methods(teacher)
    )
    pixels = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    logits = next(iter(run.methods))._compute_logits(normalize(pixels, (127.5,) * 3, (51.0,) * 3))
    torch.testing.assert_close(logits, load(teacher)(normalize(pixels)), rtol=1e-3, atol=1e-4)


def test_resume_rejects_another_teacher(teacher, make_run):
    run = make_run(methods=make_methods(teacher))
    other = make_run("seed=6")
    write_weights(other.model, teacher, about.describe(run.plan.recipe, run.plan.facts.classes, 10))
    problem = get_problem(
        RecipeError, restore, make_run(methods=make_methods(teacher)), collect_state(run, 2)
    )
    assert problem.key == "methods.distill.teacher"
    assert "has changed since the run started" in problem.clause


def test_plan_counts_forward_pass_and_weights_of_teacher(teacher):
    plain = plan_recipe()
    plan = plan_recipe(methods=make_methods(teacher))
    forward = count_teacher_flops(plan.teachers, plan.image_sizes[0])
    # a third of the training FLOPs, except for the first layer and the classifier
    assert forward == pytest.approx(
        plain.network.count_flops(plan.image_sizes[0]).training / 3, rel=0.1
    )
    images = plain.total_steps * plain.recipe.batch.global_size
    assert sum(plan.flops) - sum(plain.flops) == images * forward
    assert estimate_gpu_memory(plan) - estimate_gpu_memory(plain) == 4 * plain.network.parameters
    assert str(teacher) in plan.as_dict()["model"]["teachers"][0]


def explain_rejected_teacher(path: object, kind: type[Exception] = RecipeError) -> str:
    error = get_error(kind, plan_recipe, methods={"distill": {"teacher": str(path)}})
    assert error.problems[0].key == "methods.distill.teacher"
    return escape_controls(error)


def test_plan_rejects_missing_teacher():
    assert "is missing" in explain_rejected_teacher("")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/nonexistent", "does not exist"),
        ("timm:resnet18.a1_in1k", "is not on this machine"),
        ("a'b", "file, a run folder, timm:NAME or hf:USER/NAME"),
        ("timm/resnet18", "timm:NAME or hf:USER/NAME"),
    ],
)
def test_plan_rejects_unreadable_teacher(path, text):
    assert text in explain_rejected_teacher(path, NotReadyError)


def test_plan_rejects_teacher_of_other_classes(make_run, tmp_path):
    run = make_run()
    path = tmp_path / "other.safetensors"
    names = tuple(f"other{number}" for number in range(10))
    write_weights(run.model, path, about.describe(run.plan.recipe, names, 10))
    message = explain_rejected_teacher(path)
    assert "has other classes: other0 where the images have pattern0" in message
    run.model.fc = nn.Linear(32, 3)
    write_weights(run.model, path, about.describe(run.plan.recipe, (), 3))
    message = explain_rejected_teacher(path)
    assert "has 3 classes, but the images have 10" in message
    assert "hint:  use a teacher that fits these 10 classes and images" in message


def test_plan_rejects_teacher_with_non_finite_outputs(make_run, tmp_path):
    run = make_run()
    path = tmp_path / "other.safetensors"
    run.model.fc.weight.data.fill_(3e38)
    write_weights(run.model, path, about.describe(run.plan.recipe, run.plan.facts.classes, 10))
    assert "gives outputs that are not finite" in explain_rejected_teacher(path)


def test_memory_check_detects_teacher_that_does_not_fit(teacher, make_run):
    seen = []

    def fail(images: torch.Tensor) -> torch.Tensor:
        seen.append(images.shape)
        raise torch.OutOfMemoryError("CUDA out of memory")

    resizing = {"progressive_resizing": {"delay": "0.25dur", "finetune": "0.5dur"}}
    run = make_run("max_duration=4ep", methods=make_methods(teacher, **resizing))
    run.methods.methods["distill"].take_network(fail)
    with pytest.raises(TrainingError, match="of 32 px does not fit on this GPU"):
        GradientComputer(run).check_memory()
    assert seen == [(run.plan.rank_size, 3, 32, 32)]

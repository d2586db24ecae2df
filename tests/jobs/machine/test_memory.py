"""The size of images in memory is chosen from the free memory, and fixed before a run."""

from dataclasses import replace

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.jobs.machine import memory
from resnet_recipes.jobs.machine.memory import plan_memory, resolve_memory_pixels
from resnet_recipes.planning.plan import Plan
from tests.shared.plans import plan_imagenet

#: Bytes of an image per squared pixel of its longer edge.
PER_PIXEL = 2.2


def set_free_memory(monkeypatch: pytest.MonkeyPatch, plan: Plan, free: float) -> None:
    """Set the memory in bytes that is free for images, in addition to batches."""
    monkeypatch.setattr(memory, "get_available_memory", lambda: free + plan.batch_memory + 10**10)
    monkeypatch.setattr(memory, "compute_reserve", lambda available: 10**10)
    monkeypatch.setattr(memory, "find_decoder_fault", lambda: "")


def compute_needed(pixels: int) -> float:
    """Return the bytes of ImageNet in memory at this longer side."""
    return PER_PIXEL * pixels**2 * (1_281_167 + 50_000)


@pytest.mark.parametrize(
    ("free", "pixels"),
    [
        (compute_needed(352), 352),
        (compute_needed(351), 264),
        (compute_needed(264), 264),
        (compute_needed(263), 0),
    ],
)
def test_memory_pixels_auto_is_largest_fitting_factor(free, pixels, monkeypatch):
    plan = plan_imagenet("mild cache=auto", 8)
    messages = []
    set_free_memory(monkeypatch, plan, free)
    resolved = resolve_memory_pixels(plan, messages.append)
    assert resolved.recipe.data.memory_pixels == pixels
    assert f"cache={pixels}: " in messages[0]
    assert resolve_memory_pixels(resolved, messages.append) == resolved
    assert len(messages) == 1


def test_memory_pixels_auto_uses_the_largest_crop(monkeypatch):
    plan = plan_imagenet(
        "mild cache=auto methods.progressive_resizing.at=loader data.train_size=128", 8
    )
    set_free_memory(monkeypatch, plan, compute_needed(256))
    assert resolve_memory_pixels(plan, print).recipe.data.memory_pixels == 256


def test_images_larger_than_memory_are_partly_kept(monkeypatch):
    plan = plan_imagenet("mild cache=352", 8)
    set_free_memory(monkeypatch, plan, compute_needed(352) / 4)
    memory_plan = plan_memory(plan)
    assert memory_plan.fraction == pytest.approx(0.25, rel=1e-3)
    assert str(memory_plan).startswith("25% of the images fit at 352 px: ")
    assert resolve_memory_pixels(plan, print) == plan


def test_memory_plan_without_free_memory_keeps_no_images(monkeypatch):
    plan = plan_imagenet("mild cache=352", 8)
    set_free_memory(monkeypatch, plan, -(10**9))
    memory_plan = plan_memory(plan)
    assert (memory_plan.usable_bytes, memory_plan.fraction) == (0, 0.0)


def test_resolve_memory_pixels_rejects_machine_without_decoder(monkeypatch):
    plan = plan_imagenet("mild cache=352", 8)
    monkeypatch.setattr(memory, "find_decoder_fault", lambda: "was not built")
    with pytest.raises(RecipeError, match="needs the native decoder, which was not built"):
        resolve_memory_pixels(plan, print)


def test_synthetic_images_are_never_kept_in_memory():
    plan = plan_imagenet("mild cache=auto", 8)
    plan = replace(plan, facts=replace(plan.facts, backend="synthetic"))
    assert resolve_memory_pixels(plan, print) == plan
    assert plan_memory(plan) is None

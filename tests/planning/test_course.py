"""The training FLOPs of a plan: images times operations, on a CPU and on GPUs."""

import pytest

from resnet_recipes.planning import estimate as speeds
from resnet_recipes.planning.course import estimate_gpu_memory, make_course
from resnet_recipes.planning.estimate import (
    Estimate,
    estimate,
    guess_cpu_speeds,
    predict_gpu_speeds,
)
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.roofline import GPUS, SPLIT, Work, predict_speed
from tests.plans import imagenet

FIXED = "~methods.progressive_resizing data.train_size=224"
H200 = next(gpu for gpu in GPUS if gpu.name == "H200")


def mild(words: str = "", ranks: int = 1) -> Plan:
    return imagenet(f"mild {words}", ranks)


def on_cores(plan: Plan, cores: int = 1) -> Estimate:
    course = make_course(plan)
    return estimate(course, guess_cpu_speeds(course, cores, plan.recipe.precision.dtype))


def on_h200(plan: Plan) -> Estimate:
    course = make_course(plan)
    return estimate(course, predict_gpu_speeds(course, H200))


def test_cpu_minutes_are_images_times_multiply_adds():
    whole = on_cores(mild(FIXED)).minutes
    assert 60 * whole == pytest.approx(36 * 625 * 2048 * 12.147 / speeds.PER_CORE, rel=1e-3)
    sam = on_cores(mild(f"{FIXED} methods.sam.interval=4")).minutes
    assert sam == pytest.approx(whole * 1.25)
    assert on_cores(mild(FIXED), 4).minutes == pytest.approx(whole / 4)
    assert on_cores(mild()).minutes < whole / 2


def test_cpu_that_emulates_a_dtype_takes_longer(monkeypatch):
    whole = on_cores(mild()).minutes
    monkeypatch.setattr(speeds, "is_emulated", lambda dtype: dtype == "bf16")
    slow = on_cores(mild("precision.dtype=bf16")).minutes
    assert slow == pytest.approx(speeds.EMULATION_FACTOR * whole)
    assert on_cores(mild()).minutes == whole


def test_course_of_partial_epoch_counts_its_steps():
    short = mild(f"{FIXED} max_duration=1000ba ssr=1 schedule.warmup=0ba")
    assert make_course(short).images == (625 * 2048, 375 * 2048)
    whole = on_cores(mild(FIXED)).minutes
    assert on_cores(short).minutes == pytest.approx(whole * 1000 / (36 * 625))


def test_evaluation_with_flips_takes_two_forward_passes():
    """Manually: 36 evaluations, and one of the averaged weights."""
    once, twice = (mild(f"evaluation.flip={flip} {FIXED}") for flip in ("false", "true"))
    assert make_course(once).evaluated == 37 * 50_000
    forward = once.network.operations(once.recipe.data.eval_size).forward
    seconds = 37 * 50_000 * forward / (2e9 * speeds.PER_CORE)
    assert 60 * on_cores(once).evaluation_minutes == pytest.approx(seconds)
    assert on_cores(twice).evaluation_minutes == pytest.approx(2 * seconds / 60)
    share = on_h200(once).evaluation_minutes / on_h200(once).minutes
    assert share == pytest.approx(37 * 50_000 / (36 * 625 * 2048) / 3, rel=0.1)


def test_gpus_split_images_and_pay_for_all_reduce():
    alone = on_h200(mild(FIXED)).minutes
    work = Work("resnet50", 224, 256, blur=True, fused=True)
    assert 60 * alone == pytest.approx(
        36 * 625 * 2048 / predict_speed(H200, work).images_per_second
    )
    assert on_h200(mild(FIXED, 8)).minutes == pytest.approx(alone * 1.05 / 8)


def test_each_image_size_has_its_own_speed():
    phases = on_h200(mild()).phases
    assert [phase.pixels for phase in phases] == sorted(set(mild().sizes))
    assert {phase.limit for phase in phases} == {"memory traffic"}
    assert phases[0].images_per_second > 2 * phases[-1].images_per_second
    plain = on_h200(mild("precision.kernels=off")).phases
    assert plain[-1].images_per_second < 0.7 * phases[-1].images_per_second


def test_gpu_memory_grows_with_copies_of_the_weights():
    assert 8e9 < estimate_gpu_memory(mild("", 8)) < 14e9
    copy = pytest.approx(SPLIT * 4 * mild().network.parameters)
    assert estimate_gpu_memory(mild("methods.sam={}")) - estimate_gpu_memory(mild()) == copy
    assert estimate_gpu_memory(mild()) - estimate_gpu_memory(mild("~methods.ema")) == copy
    adamw, lamb = (estimate_gpu_memory(mild(f"optimizer={name}")) for name in ("adamw", "lamb"))
    assert lamb - adamw == copy

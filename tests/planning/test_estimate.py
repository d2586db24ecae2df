"""Estimates against manual calculations."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from resnet_recipes.planning import predictions
from resnet_recipes.planning.estimate import (
    Estimate,
    RunForecast,
    Speeds,
    estimate,
    find_evaluation_note,
    make_speeds,
    sample_epochs,
)
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.predictions import (
    estimate_gpu_memory,
    guess_cpu_speeds,
    predict_gpu_speeds,
)
from resnet_recipes.planning.roofline import DATASHEETS, Work, predict_speed
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_values

SPEEDS = Speeds(
    {88: (0.001,) * 5, 176: (0.004,) * 5}, evaluation_images_per_second=500.0, images_per_device=64
)


def make_sized_plan(
    *image_sizes: int, images: int = 1000, last: int | None = None, evaluated: int = 0
) -> Mock:
    """Return a stand-in for the plan of a run with `images` per epoch, and `last` in the last."""
    counts = (images,) * (len(image_sizes) - 1) + (last or images,)
    run = Mock(image_sizes=image_sizes, epoch_images=counts, evaluated_images=evaluated, saves=3)
    run.recipe.data.eval_size = 224
    return run


def estimate_minutes(result: Estimate) -> list[float]:
    return [phase.minutes for phase in result.phases]


def test_estimate_multiplies_images_by_seconds_per_size():
    result = estimate(make_sized_plan(88, 88, 176, last=500, evaluated=3000), SPEEDS)
    assert [(phase.pixels, phase.epochs) for phase in result.phases] == [(88, 2), (176, 0.5)]
    assert estimate_minutes(result) == pytest.approx([2000 * 0.001 / 60, 500 * 0.004 / 60])
    assert [phase.images_per_second for phase in result.phases] == pytest.approx([1000, 250])
    assert result.evaluation_minutes == pytest.approx(3000 / 500 / 60)
    assert result.cost(60.0) == pytest.approx(result.minutes + result.evaluation_minutes)


def test_seconds_at_interpolates_sizes_by_area():
    share = (128**2 - 88**2) / (176**2 - 88**2)
    assert SPEEDS.seconds_at(128).median == pytest.approx(0.001 + share * 0.003)
    assert SPEEDS.seconds_at(352).median == pytest.approx(0.016)


@pytest.mark.parametrize(
    ("changes", "limits", "seconds"),
    parse_values(
        """
{loader_images_per_second: {88: 400.0}} | [loader, step] | [2.5, 4.0]
{warm_up_seconds: 6.0} | [step, step] | [7.0, 10.0]
{loader_images_per_second: {88: 5000}, total_images_per_second: 800} | [step, step] | [1.25, 4.25]
{loader_images_per_second: {88: 5000}, total_images_per_second: 2000} | [step, step] | [1, 4]
{loader_images_per_second: {88: 500.0, 176: 200.0}} | [loader, loader] | [2.0, 5.0]
{loader_images_per_second: {88: 2000}, first_epoch_images_per_second: 400} | [step, step] | [2.5, 4]
{loader_images_per_second: {88: 500}, first_epoch_images_per_second: 400} | [loader, step] | [2.5,4]
{loader_images_per_second: {88: 500}, first_epoch_images_per_second: 5000} | [loader, step] | [2, 4]
{devices: 2, all_reduce_seconds: 0.1} | [all-reduce, step] | [1.0, 4.0]
{devices: 2, all_reduce_seconds: 0.09} | [step, step] | [1.0, 4.0]
{bottlenecks: {88: compute}} | [compute, step] | [1.0, 4.0]
"""
    ),
)
def test_estimated_phase_follows_and_names_its_bottleneck(changes, limits, seconds):
    """Expected: 1 ms for a step alone becomes 1.25 ms next to the loader at 88 px.

    Together they are never faster than the slower part. A step of 2 x 64 images takes 128 ms at 88
    px and 512 ms at 176 px.
    """
    result = estimate(make_sized_plan(88, 176), replace(SPEEDS, **changes))
    assert [phase.limit for phase in result.phases] == limits
    assert [60 * minutes for minutes in estimate_minutes(result)] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("laps", "expected"),
    parse_values("""
[1, 2, 3, 4, 5] | [2, 3, 4]
[1, 3] | [1.5, 2, 2.5]
[2] | [2, 2, 2]
"""),
)
def test_estimate_bounds_are_quartiles_of_measured_steps(laps, expected):
    result = estimate(make_sized_plan(88, images=60), Speeds({88: laps}))
    low, high = result.bounds
    assert [low, result.total_minutes, high] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("laps", "slowest"),
    parse_values("""
[1, 1, 1, 1, 1] | 1.62
[1, 1, 1, 2, 2] | 2.5
"""),
)
def test_estimate_upper_bound_covers_slow_steps_and_drift(laps, slowest):
    """Expected: 1.08 x (1.0 + 0.5), and 2.0 + 0.5."""
    speeds = Speeds({88: laps}, start_seconds=30.0)
    assert estimate(make_sized_plan(88, images=60), speeds).max_minutes == pytest.approx(slowest)


def test_estimate_includes_every_checkpoint():
    """Expected: 30 s to start, and four checkpoints of 2 s."""
    result = estimate(make_sized_plan(88), replace(SPEEDS, start_seconds=30.0, save_seconds=2.0))
    assert 60 * result.other_minutes == pytest.approx(38)


def list_epoch_sizes(sizes: dict[int, int]) -> list[int]:
    return [image_size for image_size, count in sizes.items() for _ in range(count)]


@pytest.mark.parametrize(
    ("sizes", "count", "epochs"),
    parse_values(
        """
{224: 600} | 10 | [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
{224: 4} | 10 | [0, 1, 2, 3]
{160: 12, 192: 4} | 10 | [0, 1, 15]
{88: 4, 96: 1, 104: 1, 112: 1, 120: 1, 128: 1, 176: 3} | 4 | [0, 1, 4, 11]
{88: 4, 96: 1, 104: 1, 112: 1, 120: 1, 128: 1, 176: 3} | 2 | [0, 1, 11]
"""
    ),
)
def test_sampled_epochs_cover_the_sizes(sizes, count, epochs):
    assert sample_epochs(list_epoch_sizes(sizes), count) == epochs


@pytest.mark.parametrize(
    ("sizes", "timed", "seconds"),
    parse_values(
        """
{224: 600} | {0: 90.0, 1: 60.0, 2: 66.0} | 37200
{224: 3} | {0: 90.0, 1: 60.0, 2: 66.0} | 186
{100: 2, 150: 1, 200: 2} | {0: 15.0, 1: 10.0, 4: 40.0} | 122.5
"""
    ),
)
def test_sampled_estimate_counts_first_epoch_as_second(sizes, timed, seconds):
    """Expected: 600 x (60 + 60 + 66) / 3; 60 + 60 + 66; and 2 x 10 + 2 x 40 + 10 + 30 x 5 / 12."""
    run = make_sized_plan(*list_epoch_sizes(sizes), evaluated=300)
    result = estimate(run, make_speeds(run, timed, 50.0))
    assert 60 * result.minutes == pytest.approx(seconds)
    assert {phase.limit for phase in result.phases} == {""}  # unknown
    assert 60 * result.evaluation_minutes == pytest.approx(6)
    assert estimate(run, make_speeds(run, timed, None)).evaluation_minutes is None


FIXED = "~methods.progressive_resizing data.train_size=224"
H200 = next(gpu for gpu in DATASHEETS if gpu.name == "H200")


def plan_mild(arguments: str = "", ranks: int = 1) -> Plan:
    return plan_imagenet(f"mild {arguments}", ranks)


def estimate_on_cores(plan: Plan, cores: int = 1) -> Estimate:
    return estimate(plan, guess_cpu_speeds(plan, cores))


def estimate_on_h200(plan: Plan) -> Estimate:
    return estimate(plan, predict_gpu_speeds(plan, H200))


def test_cpu_minutes_are_images_times_multiply_adds():
    whole = estimate_on_cores(plan_mild(FIXED)).minutes
    assert 60 * whole == pytest.approx(36 * 625 * 2048 * 12.147 / 12, rel=1e-3)
    sam = estimate_on_cores(plan_mild(f"{FIXED} methods.sam.interval=4")).minutes
    assert sam == pytest.approx(whole * 1.25)
    assert estimate_on_cores(plan_mild(FIXED), 4).minutes == pytest.approx(whole / 4)
    assert estimate_on_cores(plan_mild()).minutes < whole / 2


def test_cpu_that_emulates_a_dtype_takes_longer(monkeypatch):
    whole = estimate_on_cores(plan_mild()).minutes
    monkeypatch.setattr(predictions, "is_emulated", lambda dtype: dtype == "bf16")
    slow = estimate_on_cores(plan_mild("precision.dtype=bf16")).minutes
    assert slow == pytest.approx(6 * whole)
    assert estimate_on_cores(plan_mild()).minutes == whole


def test_estimate_of_partial_epoch_counts_its_steps():
    short = plan_mild(f"{FIXED} max_duration=1000ba ssr=1 schedule.warmup=0ba")
    assert short.epoch_images == (625 * 2048, 375 * 2048)
    whole = estimate_on_cores(plan_mild(FIXED)).minutes
    assert estimate_on_cores(short).minutes == pytest.approx(whole * 1000 / (36 * 625))


def test_evaluation_with_flips_takes_two_forward_passes():
    """Expected: 36 evaluations, and one of the averaged weights."""
    once, twice = (plan_mild(f"evaluation.flip={flip} {FIXED}") for flip in ("false", "true"))
    assert once.evaluated_images == 37 * 50_000
    forward = once.network.count_flops(once.recipe.data.eval_size).forward
    seconds = 37 * 50_000 * forward / (2e9 * 12)
    assert 60 * estimate_on_cores(once).evaluation_minutes == pytest.approx(seconds)
    assert estimate_on_cores(twice).evaluation_minutes == pytest.approx(2 * seconds / 60)
    share = estimate_on_h200(once).evaluation_minutes / estimate_on_h200(once).minutes
    assert share == pytest.approx(37 * 50_000 / (36 * 625 * 2048) / 3, rel=0.1)


def test_gpus_split_images_and_pay_for_all_reduce():
    alone = estimate_on_h200(plan_mild(FIXED)).minutes
    work = Work("resnet50", 224, 256, blur=True, fused=True)
    assert 60 * alone == pytest.approx(
        36 * 625 * 2048 / predict_speed(H200, work).images_per_second
    )
    eight = estimate_on_h200(plan_mild(FIXED, 8))
    assert eight.minutes == pytest.approx(alone * 1.05 / 8)
    rate = predict_speed(H200, work).images_per_second  # training takes three times the operations
    evaluated = 37 * 50_000 / (60 * eight.evaluation_minutes)
    assert evaluated == pytest.approx(8 * 3 * rate, rel=0.1)


@pytest.mark.parametrize(("seconds", "is_noted"), [(9, False), (11, True)])
def test_long_evaluations_are_noted_from_ten_seconds(seconds, is_noted):
    expected = estimate(make_sized_plan(88), SPEEDS)  # trains for a second
    forecast = RunForecast(replace(expected, evaluation_minutes=seconds / 60), SPEEDS, "")
    assert bool(find_evaluation_note(plan_mild(), forecast)) == is_noted


def test_each_image_size_has_its_own_speed():
    phases = estimate_on_h200(plan_mild()).phases
    assert [phase.pixels for phase in phases] == sorted(set(plan_mild().image_sizes))
    assert {phase.limit for phase in phases} == {"memory traffic"}
    assert phases[0].images_per_second > 2 * phases[-1].images_per_second
    plain = estimate_on_h200(plan_mild("precision.kernels=off")).phases
    assert plain[-1].images_per_second < 0.7 * phases[-1].images_per_second


def test_gpu_memory_grows_with_copies_of_the_weights():
    assert 8e9 < estimate_gpu_memory(plan_mild("", 8)) < 14e9
    copy = pytest.approx(1.2 * 4 * plan_mild().network.parameters)
    assert (
        estimate_gpu_memory(plan_mild("methods.sam={}")) - estimate_gpu_memory(plan_mild()) == copy
    )
    assert estimate_gpu_memory(plan_mild()) - estimate_gpu_memory(plan_mild("~methods.ema")) == copy
    adamw, lamb = (
        estimate_gpu_memory(plan_mild(f"optimizer={name}")) for name in ("adamw", "lamb")
    )
    assert lamb - adamw == copy

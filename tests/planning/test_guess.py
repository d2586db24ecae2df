"""Guesses are a run's images times their arithmetic."""

import pytest

from resnet_recipes.measure.datasheet import GPUS
from resnet_recipes.measure.roofline import SPLIT, Work, speed
from resnet_recipes.planning import guess
from resnet_recipes.planning.guess import cpu_seconds, roughly
from resnet_recipes.planning.plan import IMAGENET, Plan, make_plan
from resnet_recipes.recipe.compose import compose

FIXED = ("~methods.progressive_resizing", "data.train_size=224")
H200 = next(gpu for gpu in GPUS if gpu.name == "H200")


def mild(*changes: str, ranks: int = 1) -> Plan:
    return make_plan(compose("mild", changes, needs_data=False).recipe, IMAGENET, ranks)


def test_a_cpus_seconds_are_images_times_multiply_adds():
    whole = cpu_seconds(mild(*FIXED), 1)
    assert whole == pytest.approx(36 * 625 * 2048 * 12.147 / guess.PER_CORE, rel=1e-3)
    assert cpu_seconds(mild(*FIXED, "methods.sam={interval:4}"), 1) == pytest.approx(whole * 1.25)
    assert cpu_seconds(mild(*FIXED), 4) == pytest.approx(whole / 4)
    assert cpu_seconds(mild(), 1) < whole / 2


def test_a_cpu_that_emulates_a_type_takes_longer(monkeypatch):
    whole = cpu_seconds(mild(), 1)
    monkeypatch.setattr(guess, "emulates", lambda dtype: dtype == "bf16")
    assert cpu_seconds(mild("precision.dtype=bf16"), 1) == guess.EMULATED * whole
    assert cpu_seconds(mild(), 1) == whole


def test_a_run_that_ends_within_an_epoch_counts_its_own_steps():
    short = mild(*FIXED, "max_duration=100ba", "scale_schedule_ratio=1", "schedule.warmup=0ba")
    assert cpu_seconds(short, 1) == pytest.approx(cpu_seconds(mild(*FIXED), 1) * 100 / (36 * 625))


def test_gpus_share_the_images_and_lose_some_time_to_their_exchange():
    alone = guess.gpu_seconds(mild(*FIXED), H200)
    work = Work("resnet50", 224, 256, blur=True, fused=True)
    assert alone == pytest.approx(36 * 625 * 2048 / speed(H200, work).images_per_second)
    assert guess.gpu_seconds(mild(*FIXED, ranks=8), H200) == pytest.approx(alone * 1.05 / 8)


def test_each_image_size_of_a_run_has_its_speed():
    speeds = guess.gpu_speeds(mild(), H200)
    assert [found.side for found in speeds] == sorted(set(mild().sizes))
    assert speeds[0].images_per_second > 2 * speeds[-1].images_per_second
    plain = guess.gpu_speeds(mild("precision.kernels=off"), H200)
    assert plain[-1].images_per_second < 0.6 * speeds[-1].images_per_second


def test_the_recipes_fit_into_sixteen_gigabytes_and_averages_and_sam_take_more():
    assert 8e9 < guess.gpu_memory(mild(ranks=8)) < 14e9
    copy = pytest.approx(SPLIT * 4 * mild().network.parameters)
    assert guess.gpu_memory(mild("methods.sam={}")) - guess.gpu_memory(mild()) == copy
    assert guess.gpu_memory(mild()) - guess.gpu_memory(mild("~methods.ema")) == copy
    adamw, lamb = (guess.gpu_memory(mild(f"optimizer={name}")) for name in ("adamw", "lamb"))
    assert lamb - adamw == copy


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (3, "1 minute"),
        (100, "2 minutes"),
        (3000, "50 minutes"),
        (5400, "90 minutes"),
        (86400, "24 hours"),
        (4 * 86400, "4 days"),
        (80 * 86400, "11 weeks"),
        (730 * 86400, "100 weeks"),
        (740 * 86400, "2 years"),
        (3.2e9, "100 years"),
    ],
)
def test_a_length_is_told_in_the_unit_that_a_person_would_use(length, said):
    assert roughly(length) == said

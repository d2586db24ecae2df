"""The speed of cores, and the gain from images in memory, against manual calculations."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.base import cores
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.cuda import VisibleGpus
from resnet_recipes.data import sample
from resnet_recipes.data.loading import slots
from resnet_recipes.jobs.machine import loading, memory
from resnet_recipes.jobs.machine.loading import Supply, add_loading, find_gain
from resnet_recipes.jobs.machine.memory import plan_memory
from resnet_recipes.planning.estimate import Speeds, estimate
from resnet_recipes.planning.plan import Plan
from tests.shared.plans import plan_imagenet

FILES, KEPT, FIRST = (milliseconds / 1000 for milliseconds in (0.5, 0.1, 2.0))


@pytest.fixture(autouse=True)
def _assume_32_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assume a machine with 32 cores of a known speed and 1 TB."""
    for module in (cores, slots):
        monkeypatch.setattr(module, "count_cores", lambda: 32)
    monkeypatch.setattr(cores, "SMT", Path("/nowhere"))
    monkeypatch.setattr(memory, "get_available_memory", lambda: 10**12)
    monkeypatch.setattr(
        sample, "CROP_MILLISECONDS", dict.fromkeys(("native", "Python"), (0.5, 0.1, 2.0))
    )
    monkeypatch.setattr(loading, "find_decoder_fault", lambda: "")
    monkeypatch.setattr(loading.cuda, "find_gpus", lambda: VisibleGpus(8))


def test_supply_uses_at_most_sixteen_cores_per_rank():
    assert Supply.of(plan_imagenet("mild", 8)).images_per_second == pytest.approx({176: 32 / FILES})
    assert Supply.of(plan_imagenet("mild", 1)).images_per_second == pytest.approx({176: 16 / FILES})
    assert Supply.of(plan_imagenet("mild workers=3", 2)).images_per_second == pytest.approx(
        {176: 6 / FILES}
    )


def test_supply_adds_time_of_augmentation():
    augmented = Supply.of(plan_imagenet("mild methods.randaugment={}", 8)).images_per_second[176]
    assert augmented == pytest.approx(32 / (FILES + sample.AUGMENT_MILLISECONDS / 1000))


def test_supply_first_epoch_decodes_and_reads_disk(monkeypatch):
    plan = plan_imagenet("mild cache=352", 8)
    rates, first_epoch = Supply.of(plan)
    assert (rates, first_epoch) == ({176: pytest.approx(32 / KEPT)}, pytest.approx(32 / FIRST))
    looked_up = sample.Sample.of(plan.facts)
    monkeypatch.setattr(sample.Sample, "of", lambda facts: looked_up._replace(disk_seconds=0.01))
    assert Supply.of(plan).first_epoch_images_per_second == pytest.approx(100)


def test_supply_with_partial_memory_averages_both_costs(monkeypatch):
    plan = plan_imagenet("mild cache=352", 8)
    half = plan_memory(plan).needed_bytes / 2 + plan.batch_memory
    monkeypatch.setattr(memory, "compute_reserve", lambda available: 0)
    monkeypatch.setattr(memory, "get_available_memory", lambda: half)
    assert Supply.of(plan).images_per_second[176] == pytest.approx(
        32 / ((KEPT + FIRST) / 2), rel=1e-4
    )


def make_fast_gpus(plan: Plan) -> Speeds:
    seconds = dict.fromkeys(plan.image_sizes, (FILES / 64,))
    return add_loading(plan, Speeds(seconds))


def test_find_gain_reports_minutes_with_images_in_memory():
    """Expected: 32 epochs at half speed; or one decoding epoch at 1/8 and 31 at full speed."""
    plan = plan_imagenet("mild epochs=32", 8)
    gain = find_gain(plan, make_fast_gpus(plan))
    epoch = 2048 * plan.steps_per_epoch * FILES / 64 / 60
    assert estimate(plan, make_fast_gpus(plan)).minutes == pytest.approx(64 * epoch)
    assert gain.minutes_without_loading == pytest.approx(32 * epoch)
    assert gain.minutes_in_memory == pytest.approx((31 + 8) * epoch)
    assert (gain.memory.longer_side, gain.fix) == (352, "cache=auto")


def test_find_gain_keeps_measured_steps():
    """Expected: memory replaces 10,000 measured images per second."""
    plan = plan_imagenet("mild epochs=20", 8)
    measured = Speeds(
        dict.fromkeys(plan.image_sizes, (1e-6,)),
        loader_images_per_second={88: 10_000.0},
        total_images_per_second=1 / 5e-4,
    )
    epoch = 2048 * plan.steps_per_epoch / 60
    minutes = epoch * (19 * KEPT + FIRST) / 32
    assert find_gain(plan, measured).minutes_in_memory == pytest.approx(minutes)


def measure_on_cpu(plan: Plan, step: float, both: float) -> Speeds:
    """Return measured speeds, from milliseconds per image; the loader alone takes 0.1."""
    return Speeds(
        dict.fromkeys(plan.image_sizes, (step / 1000,)),
        loader_images_per_second={88: 10_000.0},
        total_images_per_second=1000 / both,
    )


def test_find_gain_ignores_contention_of_fast_loader(monkeypatch):
    """Loading costs 6% more time; files are predicted to cost 0.5 / 16 ms per image, 3%."""
    monkeypatch.setattr(loading.cuda, "find_gpus", lambda: VisibleGpus())
    plan = plan_imagenet("mild epochs=20", 1)
    assert find_gain(plan, measure_on_cpu(plan, 1.0, 1.06)) is None


def test_find_gain_compares_predictions_of_fast_loader(monkeypatch):
    """Predictions are 0.2 + 0.5 / 16 ms per image in files, and 0.2 + 0.1 / 16 in memory."""
    monkeypatch.setattr(loading.cuda, "find_gpus", lambda: VisibleGpus())
    plan = plan_imagenet("mild epochs=20", 1)
    gain = find_gain(plan, measure_on_cpu(plan, 0.2, 0.25))
    images = 20 * 2048 * plan.steps_per_epoch
    assert gain.minutes_without_loading == pytest.approx(images * 0.2e-3 / 60)
    assert gain.minutes_in_memory == pytest.approx(images * 0.225e-3 / 60)
    assert gain.fix == "cache=auto"
    assert find_gain(plan, measure_on_cpu(plan, 0.2, 0.2)) is None


def test_find_gain_omits_memory_slower_than_measured_files():
    plan = plan_imagenet("mild epochs=20", 8)
    measured = Speeds(
        dict.fromkeys(plan.image_sizes, (1e-9,)), loader_images_per_second={88: 32 / KEPT + 1}
    )
    gain = find_gain(plan, measured)
    assert (gain.memory, gain.fix) == (None, "")


def test_find_gain_returns_none_for_fast_loading():
    plan = plan_imagenet("mild", 8)
    slow = dict.fromkeys(plan.image_sizes, (1.0,))
    assert find_gain(plan, add_loading(plan, Speeds(slow))) is None
    assert find_gain(plan, Speeds(slow)) is None


def test_add_loading_sums_both_times_on_cpu(monkeypatch):
    plan = plan_imagenet("mild", 1)
    monkeypatch.setattr(loading.cuda, "find_gpus", lambda: VisibleGpus())
    speeds = add_loading(plan, Speeds(dict.fromkeys(plan.image_sizes, (0.001,))))
    assert speeds.total_images_per_second == pytest.approx(1 / (0.001 + FILES / 16))


@pytest.mark.parametrize("why", ["memory", "native", "enabled"])
def test_find_gain_suggests_no_setting_without_gain(why, monkeypatch):
    plan = plan_imagenet("mild cache=352" if why == "enabled" else "mild", 8)
    if why == "memory":
        monkeypatch.setattr(memory, "get_available_memory", lambda: 10**11)
    if why == "native":
        monkeypatch.setattr(loading, "find_decoder_fault", lambda: "was not built")
    monkeypatch.setattr(
        sample, "CROP_MILLISECONDS", dict.fromkeys(("native", "Python"), (0.5, 0.5, 2.0))
    )
    gain = find_gain(plan, make_fast_gpus(plan))
    assert gain.minutes_without_loading < gain.minutes_in_memory
    assert (gain.memory, gain.fix) == (None, "")


def test_find_gain_needs_memory_for_all_images(monkeypatch):
    """It would be faster than files, but auto keeps all images or none."""
    plan = plan_imagenet("mild epochs=32", 8)
    part = 0.9 * plan_memory(plan_imagenet("mild cache=264", 8)).needed_bytes + plan.batch_memory
    monkeypatch.setattr(memory, "compute_reserve", lambda available: 0)
    monkeypatch.setattr(memory, "get_available_memory", lambda: part)
    faster = plan_imagenet("mild cache=264 epochs=32", 8)
    assert (
        estimate(faster, make_fast_gpus(faster)).minutes
        < estimate(plan, make_fast_gpus(plan)).minutes
    )
    assert find_gain(plan, make_fast_gpus(plan)).memory is None
    assert plan_memory(plan_imagenet("mild cache=auto", 8)) is None


def test_supply_is_predicted_for_first_and_last_size(monkeypatch):
    """The first epoch has the first size."""
    cost = sample.CropSeconds
    monkeypatch.setattr(
        sample.Sample, "crop_seconds", lambda _, config, augment, side: cost(side, side / 2)
    )
    plan = plan_imagenet("mild cache=352 methods.progressive_resizing.at=loader", 8)
    supply = Supply.of(plan)
    assert supply.images_per_second == pytest.approx({88: 32 / 44, 176: 32 / 88})
    assert supply.first_epoch_images_per_second == pytest.approx(32 / 88)


def test_find_gain_suggests_convert_beyond_memory(monkeypatch):
    monkeypatch.setattr(memory, "get_available_memory", lambda: 10**11)
    plan = plan_imagenet("mild data=/data/my_images/", 8)
    fix = "resnet-recipes convert /data/my_images /data/my_images-beton write_mode=jpg levels=2"
    assert find_gain(plan, make_fast_gpus(plan)).fix == fix


def test_add_loading_ignores_damaged_images(monkeypatch):
    def fail(*_: object) -> None:
        raise TrainingError("damaged")

    monkeypatch.setattr(sample.Sample, "crop_seconds", fail)
    plan = plan_imagenet("mild", 8)
    bare = Speeds({88: (1.0,)})
    assert add_loading(plan, bare) == bare


def test_add_loading_ignores_synthetic_images():
    plan = plan_imagenet("mild", 8)
    bare = Speeds({88: (1.0,)})
    plan = replace(plan, facts=replace(plan.facts, backend="synthetic"))
    assert add_loading(plan, bare) == bare

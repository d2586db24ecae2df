"""The source of a run's expected time."""

from dataclasses import replace

import pytest

from resnet_recipes import cuda
from resnet_recipes.jobs.machine import run_time
from resnet_recipes.jobs.machine.run_time import (
    GUESS,
    UNKNOWN_TIME,
    make_speed_key,
    predict_memory,
    predict_time,
    store_speeds,
)
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.measurement_cache import read_measurement, write_measurement
from tests.shared.plans import plan_imagenet


@pytest.mark.parametrize(
    ("arguments", "is_predicted"),
    [
        ("finetune model.freeze=none", True),
        ("finetune", False),  # only the classifier has a backward pass
        ("finetune model.freeze=layer2", False),
        ("finetune model.freeze=none model.name=torchvision:resnet50", False),
        ("finetune model.freeze=none precision.dtype=fp32", False),
    ],
)
def test_gpu_predictions_cover_resnets_that_train_all_layers(arguments, is_predicted, monkeypatch):
    gpus = cuda.VisibleGpus(1, "NVIDIA A100-SXM4-80GB", "bf16", 85_000_000_000)
    monkeypatch.setattr(cuda, "find_gpus", lambda: gpus)
    plan = plan_imagenet(f"{arguments} launch.device=cuda", 1)
    assert (predict_time(plan) is not None) == is_predicted
    assert (predict_memory(plan) is not None) == is_predicted


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_measurement_predicts_runs_on_its_device_only(count, is_on_gpu, monkeypatch, tmp_path):
    """With device=auto, one rank runs on a GPU if there is one, and N ranks need N GPUs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "find_gpus", lambda: cuda.VisibleGpus(count))  # of an unknown name
    plans = {
        False: [plan_imagenet("mild launch.device=cpu", 1)],
        True: [plan_imagenet("mild launch.device=cuda", 1), plan_imagenet("mild gpus=1", 1)],
    }
    plans[bool(count)].append(plan_imagenet("mild", 1))
    speeds = Speeds(dict.fromkeys(plans[False][0].image_sizes, (0.01,)))
    write_measurement(make_speed_key(plans[is_on_gpu][0]), speeds)
    for plan in plans[is_on_gpu]:
        assert predict_time(plan).when
    forecasts = map(predict_time, plans[not is_on_gpu])
    sources = {forecast.source if forecast else UNKNOWN_TIME for forecast in forecasts}
    assert sources == {GUESS if is_on_gpu else UNKNOWN_TIME}


def test_finished_run_predicts_time_unless_machine_was_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = plan_imagenet("mild launch.device=cpu", 1)
    size, key = plan.image_sizes[0], make_speed_key(plan)

    def finish_run(clock: list[float]) -> Speeds | None:
        records = [{"kind": "begin", "step": 0, "training_seconds": 0.0}]
        records += [
            {"kind": "step", "step": 10 * count, "pixels": size, "training_seconds": seconds}
            | {"data_wait_share": 0.0}
            for count, seconds in enumerate(clock, start=1)
        ]
        records.append({"kind": "evaluation", "step": 30, "seconds": 25.0})
        monkeypatch.setattr(run_time, "read_metrics", lambda _: records)
        store_speeds(plan, tmp_path)
        measurement = read_measurement(key)
        return measurement and measurement.speeds

    assert finish_run([9.0]) is None  # one interval, with the warm-up
    speeds = finish_run([9.0, 11.0, 13.5])
    images = 20 * plan.recipe.batch.global_size
    assert speeds.seconds_per_image == {size: pytest.approx((4.5 / images,))}
    assert speeds.evaluation_images_per_second == pytest.approx(plan.facts.eval_examples / 25)
    assert "measured on this machine" in predict_time(plan).source
    speeds = finish_run([9.0, 10.0, 11.0])
    assert speeds.seconds_per_image == {size: pytest.approx((2 / images,))}
    measured = replace(speeds, start_seconds=5.0)  # as `estimate` does
    write_measurement(key, measured)
    assert finish_run([9.0, 11.0, 13.5]) == measured

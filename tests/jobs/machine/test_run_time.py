"""The source of a run's expected time."""

import pytest

from resnet_recipes import cuda
from resnet_recipes.jobs.machine.run_time import (
    GUESS,
    UNKNOWN_TIME,
    make_speed_key,
    predict_memory,
    predict_time,
)
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.measurement_cache import write_measurement
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

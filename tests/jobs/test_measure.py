"""The source of a run's expected time."""

import pytest

from resnet_recipes.doctor import cuda
from resnet_recipes.jobs.measure import predict_memory, predict_time
from tests.plans import plan_imagenet


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
    gpus = cuda.Gpus(1, "NVIDIA A100-SXM4-80GB", "bf16", 85_000_000_000)
    monkeypatch.setattr(cuda, "find_gpus", lambda: gpus)
    plan = plan_imagenet(f"{arguments} launch.device=cuda", 1)
    assert (predict_time(plan) is not None) == is_predicted
    assert (predict_memory(plan) is not None) == is_predicted

"""Evaluation on a rank."""

import json
from unittest.mock import Mock

import torch

from resnet_recipes.inference.trained_network import TrainedNetwork
from resnet_recipes.jobs import evaluate
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.training import distributed
from resnet_recipes.training.distributed import Rank


def test_evaluate_sets_device_before_moving_the_network(tmp_path, monkeypatch):
    """Moving the network compares the kernels, which Triton launches on the current device."""
    done = []
    (tmp_path / "config.yaml").write_text(
        freeze(compose("mild", ["data=/images"], needs_data=False).recipe)
    )
    (tmp_path / "task.json").write_text(
        json.dumps({"task": "evaluate", "path": "weights.pt", "sizes": []})
    )
    monkeypatch.setattr(distributed, "read_rank", lambda *_: Rank(1, 2, torch.device("cuda", 1)))
    monkeypatch.setattr(distributed, "form_group", lambda _: done.append("joined"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(f"took {device}"))
    monkeypatch.setattr(evaluate, "open_network", lambda *_: None)
    monkeypatch.setattr(
        TrainedNetwork, "to_device", lambda *_: done.append("put the network there")
    )
    evaluate.run_task(Mock(folder=tmp_path))
    assert done == ["took cuda:1", "joined", "put the network there"]

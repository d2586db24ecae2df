"""Weights files are read back with their description, and rejected if either was changed."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
import safetensors.torch
import torch
import torchvision

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network import about, archive
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import KEY, compute_digest, read_weights, write_weights
from resnet_recipes.training.run import Run
from tests.shared.checks import is_identical
from tests.shared.disk_faults import limit_file_size
from tests.shared.tables import parse_rows

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def describe_run(run: Run) -> NetworkDescription:
    return about.describe(run.plan.recipe, run.plan.facts.classes, run.plan.num_classes, 2.0)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_torchvision_loads_weights_with_the_same_output(make_run, tmp_path, suffix):
    run = make_run("methods.stochastic_depth.drop_rate=0.3")
    before = deepcopy(run.model.state_dict())
    path = write_weights(run.model, tmp_path / f"weights.{suffix}", describe_run(run))
    state = torchvision.models.resnet18(num_classes=run.plan.num_classes).eval()
    state.load_state_dict(
        torch.load(path, weights_only=True) if suffix == "pt" else safetensors.torch.load_file(path)
    )
    run.model.eval()
    with torch.no_grad():  # the factors of StochasticDepth are applied in another place
        torch.testing.assert_close(state(IMAGES), run.model(IMAGES), rtol=1e-4, atol=1e-4)
    assert is_identical(run.model.state_dict(), before)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_network_is_restored_with_methods_and_classes(make_run, tmp_path, suffix):
    run = make_run("methods.blurpool.blur_first=false methods.bce_loss={}")
    path = write_weights(run.model, tmp_path / f"weights.{suffix}", describe_run(run))
    loaded = load(path)
    run.model.eval()
    with torch.no_grad():
        assert torch.equal(loaded.model(IMAGES), run.model(IMAGES))
    assert loaded.about.classes == run.plan.facts.classes
    assert loaded.about.method_settings["blurpool"]["blur_first"] is False
    assert (loaded.about.eval_resize, loaded.about.eval_size, loaded.is_described) == (36, 32, True)


def test_same_network_writes_the_same_file(make_run, tmp_path):
    run = make_run()
    about = replace(describe_run(run), license="caf\u00e9 \ud800")
    files = {
        write_weights(run.model, tmp_path / f"{copy}.safetensors", about).read_bytes()
        for copy in range(20)
    }
    assert len(files) == 1
    assert load(tmp_path / "0.safetensors").about == about


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_write_weights_on_full_disk_leaves_no_part(make_run, tmp_path, suffix):
    run = make_run()
    with pytest.raises(OSError, match="File too large"), limit_file_size(100_000):
        write_weights(run.model, tmp_path / f"weights.{suffix}", describe_run(run))
    assert not list(tmp_path.iterdir())


def test_write_weights_writes_the_ema_average(make_run, tmp_path):
    run = make_run("methods.ema={}")
    zeros = {
        f"ema.{name}": torch.zeros_like(tensor) for name, tensor in run.model.state_dict().items()
    }
    run.methods.load_state_dict(zeros)
    with run.methods.eval_weights(run.model):
        weights = archive.read(write_weights(run.model, tmp_path / "weights.pt", describe_run(run)))
    assert all((tensor == 0).all() for tensor in weights.values())


def test_network_description_round_trips_through_json():
    settings = {"blurpool": vars(BlurPool(replace_maxpools=False, min_channels=3))}
    numbers = {
        "mean": (127.5, 0.0, 1.0),
        "std": (127.5, 255.0, 3.0),
        "epochs": 1.5,
        "top1_percent": 70.25,
        "loss": 0.5,
        "eval_examples": 9,
    }
    whole = NetworkDescription("resnet18", 2, ("tench", "caf\u00e9"), settings, **numbers)
    assert about.from_json(whole.to_json()) == whole


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method_settings", json.dumps({"blurpool": vars(BlurPool()) | {"replace_convs": 1}})),
        *parse_rows(
            """
architecture | "resnet18;"
architecture | "__init__"
num_classes | 3
num_classes | true
num_classes | -1
classes | ["one", 2]
method_settings | {"ema": {}}
method_settings | {"blurpool": {}}
method_settings | []
eval_size | 1000000000
eval_size | 224.0
mean | [1.0, 2.0]
mean | [300.0, 2.0, 3.0]
std | [0.0, 1.0, 1.0]
loss | NaN
epochs | "1"
arguments | {"width": 1000000}
eval_interpolation | "nearest"
format | 2
unknown | 1
"""
        ),
    ],
)
def test_network_description_rejects_invalid_fields(field, value):
    tree = json.loads(NetworkDescription("resnet18", 2, ("one", "two"), epochs=1.0).to_json())
    with pytest.raises(ValueError, match=r"description|names|normalized"):
        about.from_json(json.dumps(tree | {field: json.loads(value)}))


@pytest.mark.parametrize("text", ["[" * 30_000, '{"loss": 1' + "0" * 400 + "}", "[NaN]"])
def test_network_description_rejects_untrusted_json(text):
    with pytest.raises(ValueError, match="not a JSON object"):
        about.from_json(text)


@pytest.mark.parametrize("suffix", [".onnx", ".PT2"])
def test_network_for_another_program_is_not_called_damaged(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"\x08\x0a\x12\x07pytorch")
    with pytest.raises(NotReadyError, match="files are not read") as caught:
        load(path)
    (problem,) = caught.value.problems
    assert "copy" not in "".join(problem.advice)
    assert "exported from" in problem.advice[0]


def test_changed_description_or_tensor_fails_checksum(make_run, tmp_path):
    run = make_run()
    path = write_weights(run.model, tmp_path / "weights.safetensors", describe_run(run))
    state, stored = read_weights(path)
    for name, change in (
        ("text", {KEY: replace(stored, flip=True).to_json()}),
        ("no sum", {"sha256": ""}),
    ):
        metadata = {"format": "pt", KEY: stored.to_json(), "sha256": "0" * 64} | change
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors.torch.save(state, metadata))
        with pytest.raises(archive.ArchiveError, match="checksum"):
            read_weights(tmp_path / f"{name}.safetensors")


def test_weights_digest_includes_types_and_shapes():
    zeros = [torch.zeros(4, dtype=torch.int32), torch.zeros(4), torch.zeros(2, 2)]
    assert len({compute_digest({"weight": tensor}, "") for tensor in zeros}) == 3

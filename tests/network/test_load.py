"""Load networks, and use them in Python: outputs, transforms, heat maps and features."""

import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import nn

import resnet_recipes
from resnet_recipes import backbones
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.images.decode import BadImageError
from resnet_recipes.network import about
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network, load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.state import collect_state
from tests.data.mutants import damage_randomly
from tests.shared.checks import get_error, is_identical
from tests.shared.disk_faults import create_special_file
from tests.shared.images import CLASSES
from tests.shared.run_folders import create_folder_with_weights, create_run_folder
from tests.shared.tiny_networks import build_narrow_resnet18

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def narrow_resnet18(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A network with the names of torchvision ResNet-18 but few parameters.

    `load` also builds such networks.
    """
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)
    torch.manual_seed(1)
    return build_narrow_resnet18(4).eval()


def compute_outputs(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IMAGES)


def explain_rejected_file(path: Path) -> str:
    """Return why a file is rejected; the message must name the file."""
    error = get_error(NotReadyError, load, path)
    assert str(path) in str(error)
    return error.problems[0].clause


@pytest.mark.parametrize(
    "kind", ["plain", "state_dict", "module.", "half", "safetensors", "no counters"]
)
def test_load_accepts_library_names_and_notes_assumptions(kind, narrow_resnet18, tmp_path):
    state = narrow_resnet18.state_dict()
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pt")
    saved = {
        "state_dict": {"state_dict": dict(state), "arch": "resnet18", "epoch": 3},
        "module.": {f"module.{name}": tensor for name, tensor in state.items()},
        "half": {
            name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
        },
        "no counters": {
            name: tensor for name, tensor in state.items() if not name.endswith("tracked")
        },
    }.get(kind, state)
    if kind == "safetensors":
        safetensors.torch.save_file(saved, path, {"format": "pt"})
    else:
        torch.save(saved, path)
    loaded = load(path)
    torch.testing.assert_close(
        compute_outputs(loaded.model),
        compute_outputs(narrow_resnet18),
        rtol=1e-2 if kind == "half" else 0,
        atol=1e-2 if kind == "half" else 1e-6,
    )
    assert (loaded.about.architecture, loaded.about.num_classes) == ("resnet18", 4)
    assert not loaded.is_described
    assert not loaded.is_matched_by_order


def test_checkpoint_loads_averaged_network_with_methods(make_run, tmp_path):
    run = make_run("methods.blurpool={} methods.stochastic_depth.drop_rate=0.5 methods.ema={}")
    average = {f"ema.{name}": tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.methods.load_state_dict(average)
    run.model.eval()
    expected = compute_outputs(run.model)
    with torch.no_grad():
        run.model.fc.weight.zero_()
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(8, collect_state(run, 8), wait=True)
    loaded = load(tmp_path / "step-00000008.pt")
    torch.testing.assert_close(compute_outputs(loaded.model), expected, rtol=1e-4, atol=1e-4)
    assert loaded.about.classes == run.plan.facts.classes


def test_network_has_transform_and_class_names(make_run, tmp_path):
    run = create_folder_with_weights(make_run, tmp_path / "run", methods={"blurpool": {}})
    network = resnet_recipes.load(str(run))
    image = tmp_path / "images" / "val" / "pattern3" / "1.jpg"
    assert isinstance(network, nn.Module)
    assert (network.training, network.classes) == (False, CLASSES)
    picture = Image.open(image)
    pixels = np.array(picture)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    for image_form in (str(image), image.read_bytes(), picture, pixels, tensor):
        assert is_identical(network.transform(image_form), network.transform(image))
    gray = np.arange(1600, dtype=np.uint8).reshape(40, 40)
    colored = np.stack([gray, gray, gray, 0 * gray], axis=2)
    for image_form in (colored, torch.from_numpy(gray), torch.from_numpy(gray)[None]):
        assert torch.equal(network.transform(gray), network.transform(image_form))


class TokenNetwork(nn.Module):
    """A network without a feature map: patches, then tokens or channels last."""

    def __init__(self, shape):
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 4, 4)
        self.mix = nn.Linear(6, 6)
        self.shape = shape

    def forward(self, images):
        tokens = self.patches(images).permute(0, 2, 3, 1)
        return self.mix(tokens.reshape(len(images), *self.shape, 6)).flatten(1, -2).mean(1)


def test_heat_map_is_layer_cam():
    torch.manual_seed(0)
    head = nn.Linear(5, 2)
    features = nn.Sequential(nn.Conv2d(3, 5, 3, 2), nn.BatchNorm2d(5).eval(), nn.ReLU(inplace=True))
    model = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    images = torch.randn(3, 3, 21, 21)
    labels = torch.tensor([1, 0, 1])
    with torch.no_grad():
        heat_maps = Network(model, NetworkDescription("resnet18", 2)).heat_map(images, labels)
        maps = features(images)
    for image, label, heat in zip(maps, labels.tolist(), heat_maps, strict=True):
        expected = torch.zeros(10, 10)
        for channel in range(5):  # all pixels of a channel have the same positive slope, or 0
            expected += max(0.0, head.weight[label, channel].item()) * image[channel]
        large = F.interpolate(expected[None, None], (21, 21), mode="bilinear")[0, 0]
        torch.testing.assert_close(heat, large / large.max())
    assert images.grad is None
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("shape", [(16,), (4, 4)])
def test_heat_map_of_transformer_is_none(shape):
    network = Network(TokenNetwork(shape), NetworkDescription("resnet18", 2))
    assert network.heat_map(torch.randn(2, 3, 16, 16), torch.tensor([0, 1])) is None


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"no image", "image is not an image of a known format"),
        (b"", "image is empty"),
        ("none.jpg", "none.jpg cannot be read: No such file"),
        (5, "image is of type int"),
        (np.zeros((40, 40, 3)), r"image is float64 \[40, 40, 3\]; an image is uint8"),
        (np.zeros((3, 40, 40), np.uint8), r"image is uint8 \[3, 40, 40\]"),
        (torch.zeros(3, 40, 41), r"image is float32 \[3, 40, 41\]; an image is uint8"),
        (torch.zeros(40, 40, 3).byte(), r"image is uint8 \[40, 40, 3\]"),
        (np.zeros((0, 40, 3), np.uint8), "image has no pixels"),
        (Image.new("RGB", (0, 0)), "image has no pixels"),
    ],
)
def test_transform_rejects_invalid_images(image, message):
    network = Network(nn.Flatten(), NetworkDescription("resnet18", 2))
    with pytest.raises(BadImageError, match=message):
        network.transform(image)


def test_run_without_weights_suggests_newest_checkpoint(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for step, size in ((8, 0), (9, 1)):
        checkpoint = tmp_path / "checkpoints" / f"step-{step:08}.pt"
        checkpoint.touch()
        checkpoint.with_suffix(".json").write_text(f'{{"bytes": {size}}}')
    (problem,) = get_error(NotReadyError, load, tmp_path).problems
    assert problem.advice == (f"{tmp_path}/checkpoints/step-00000008.pt",)
    assert problem.clause == "is not a run folder"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/overrides.txt").touch()
    (problem,) = get_error(NotReadyError, load, tmp_path).problems
    assert problem.clause == "is a folder of runs, not a run"
    (tmp_path / "overrides.txt").touch()
    assert "not finished" in get_error(NotReadyError, load, tmp_path).problems[0].clause


def test_run_without_weights_suggests_no_other_run(tmp_path):
    stopped, finished = (create_run_folder(tmp_path, name) for name in ("stopped", "finished"))
    (stopped / "summary.json").unlink()
    (problem,) = get_error(NotReadyError, load, stopped).problems
    assert problem.clause == "is a run that is not finished and has no intact checkpoint"
    (finished / "weights.safetensors").touch()
    (tmp_path / "empty").mkdir()
    for folder in (stopped, tmp_path / "empty"):
        (problem,) = get_error(NotReadyError, load, folder).problems
        assert problem.advice == ("pass the folder of a finished run",)
    (finished / "logs").mkdir()
    (problem,) = get_error(NotReadyError, load, finished / "logs").problems
    assert problem.corrections == (str(finished),)


def test_damaged_weights_of_run_suggest_newest_undamaged_checkpoint(make_run, tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    weights = tmp_path / "weights.safetensors"
    for step in (4, 8):
        checkpoints.save(step, collect_state(make_run(), step), wait=True)
    older, newest = sorted(checkpoints.folder.glob("*.pt"))
    weights.write_bytes(b"cut short")
    for source, subject in [(tmp_path, f"{tmp_path}: weights.safetensors"), (weights, weights)]:
        (problem,) = get_error(NotReadyError, load, source).problems
        assert problem.lines()[0].startswith(f"{subject} cannot be used: ")
        assert problem.corrections == (str(newest),)
    newest.write_bytes(b"")
    assert get_error(NotReadyError, load, tmp_path).problems[0].corrections == (str(older),)
    older.unlink()
    (tmp_path / "command.txt").touch()
    message = str(get_error(NotReadyError, load, tmp_path))
    assert f"train again with the command in {tmp_path}/command.txt" in message


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:resnet18",
        "torchvision:squeezenet1_1",
        "timm:test_vit",
        "timm:test_efficientnet",
    ],
)
def test_embed_returns_input_of_classifier(name):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    model = backbones.build(name, 3, {}).eval()
    network = Network(model, NetworkDescription(name, 3))
    images = torch.randn(2, 3, *([160] * 2 if "vit" in name else [64] * 2))
    with torch.no_grad():
        features = network.embed(images)
        if name.startswith("timm:"):
            expected = model.forward_head(model.forward_features(images), pre_logits=True)
        elif "squeezenet" in name:
            expected = model.features(images).mean((2, 3))
        else:
            expected = nn.Sequential(*list(model.children())[:-1])(images).flatten(1)
    torch.testing.assert_close(features, expected)


@pytest.mark.timeout(30)  # opening a FIFO would block
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_special_or_endless_file_is_rejected_at_once(suffix, tmp_path):
    def make_file(kind: str) -> Path:
        return create_special_file(tmp_path / f"{kind}.{suffix}", kind)

    assert "Not a regular file" in explain_rejected_file(make_file("fifo"))
    assert "Not a regular file" in explain_rejected_file(make_file("device"))
    assert "Larger than" in explain_rejected_file(make_file("sparse"))
    assert "No such file" in explain_rejected_file(make_file("nowhere"))
    assert "too long" in explain_rejected_file(tmp_path / f"{'a' * 5000}.{suffix}")
    assert "null byte" in explain_rejected_file(tmp_path / f"a\0b.{suffix}")
    os.mkfifo(tmp_path / "weights.safetensors")
    with pytest.raises(NotReadyError, match="Not a regular file"):
        load(tmp_path)


def test_folder_with_one_weights_file_suggests_it(tmp_path):
    (tmp_path / "lite0.pth").touch()
    problem = get_error(NotReadyError, load, tmp_path).problems[0]
    assert problem.corrections == (str(tmp_path / "lite0.pth"),)
    (tmp_path / "other.pt").touch()
    assert not get_error(NotReadyError, load, tmp_path).problems[0].corrections


def test_weights_that_fit_no_network_are_rejected(narrow_resnet18, tmp_path):
    state = narrow_resnet18.state_dict()
    path = tmp_path / "w.pt"
    loop = {}
    loop["state_dict"] = loop
    wrong = {
        "bn1.running_var has negative values": state | {"bn1.running_var": -torch.ones(64)},
        "not named as in a ResNet (no tensors)": loop,
        "fc.weight": state | {"fc.weight": torch.zeros(0, 64)},
        "conv1.weight is not": state | {"conv1.weight": torch.zeros(64, 3, 7, 8)},
        "not finite": state | {"bn1.bias": torch.full((64,), torch.nan)},
        "bn1.weight is not": state | {"bn1.weight": torch.zeros(64, dtype=torch.int64)},
        "missing or unknown": state | {"extra": torch.zeros(1)},
        "not named as in a ResNet (": {
            name: tensor for name, tensor in state.items() if not name.startswith("layer4")
        },
        "does not contain": {"model": {1: torch.zeros(1)}},
        "no classifier": {name: tensor for name, tensor in state.items() if name != "fc.weight"},
    }
    for message, saved in wrong.items():
        torch.save(saved, path)
        assert message in explain_rejected_file(path)
    for recipe in ({"name": [[[[[[[]]]]]]]}, torch.zeros(1)):
        torch.save({"recipe": recipe, "model": state, "methods": {}, "classes": []}, path)
        assert "not a checkpoint of" in explain_rejected_file(path)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_mutated_file_is_rejected_or_loads_the_same(suffix, narrow_resnet18, tmp_path):
    described = about.NetworkDescription("resnet18", 4, ("a", "b", "c", "d"), epochs=1.0)
    content = write_weights(narrow_resnet18, tmp_path / f"good.{suffix}", described).read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / f"bad.{suffix}"
    count = 0
    expected = narrow_resnet18.state_dict()
    for _ in range(100):
        path.write_bytes(damage_randomly(bytearray(content), content, rng))
        try:
            loaded = load(path)
        except NotReadyError:
            count += 1
        else:  # the damage hit padding between entries, or swapped equal bytes
            assert is_identical(loaded.model.state_dict(), expected)
            assert loaded.about == described
    assert count >= 70

"""Files are matched with networks by name or order, and lookalikes are found."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from resnet_recipes import backbones
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.network.matching import find_fitting_networks, find_lookalikes
from resnet_recipes.network.open import iterate_notes, open_network
from resnet_recipes.network.pretrained import open_weights
from tests.shared.checks import get_problem

NAME = "timm:test_efficientnet"
CONFIG = ModelConfig(NAME)


@pytest.fixture
def tiny_efficientnet() -> nn.Module:
    """A small timm network in evaluation mode, whose statistics have been updated once."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("test_efficientnet", num_classes=5)
    model(torch.randn(4, 3, 64, 64))
    return model.eval()


def rename_tensors(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors with the names of another library, in the same order."""
    return {
        f"net.part{index}.{name.rpartition('.')[2]}": tensor
        for index, (name, tensor) in enumerate(state.items())
    }


def compute_logits_of_ones(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.ones(2, 3, 64, 64))


@pytest.mark.parametrize("counters", [True, False])
def test_weights_named_by_another_library_match_by_order(counters, tiny_efficientnet, tmp_path):
    path = tmp_path / "w.pth"
    state = rename_tensors(tiny_efficientnet.state_dict())
    if not counters:
        state = {name: item for name, item in state.items() if not name.endswith("_tracked")}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    network = open_network(str(path), CONFIG)
    assert network.about.num_classes == 5
    torch.testing.assert_close(
        compute_logits_of_ones(network), compute_logits_of_ones(tiny_efficientnet)
    )
    assert any("by order and shape" in note for note in iterate_notes(network))


def test_order_does_not_match_other_kinds_or_shapes(tiny_efficientnet, tmp_path):
    path = tmp_path / "w.pth"
    state = rename_tensors(tiny_efficientnet.state_dict())
    names = list(state)
    turned = {name: state[name] for name in (names[0], names[2], names[1], *names[3:])}
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    other = state | {names[0]: torch.zeros(3, 3)}
    for change in (turned, other, state | {"extra": state[names[1]]}):
        torch.save(change, path)
        with pytest.raises(NotReadyError, match="it is not timm:test_efficientnet"):
            open_network(str(path), CONFIG)
    with pytest.raises(NotReadyError, match="it is not timm:test_efficientnet"):
        open_network(str(tmp_path / "w.safetensors"), CONFIG)


def test_unknown_network_error_suggests_fitting_names(tiny_efficientnet, tmp_path, monkeypatch):
    small = [name for name in backbones.list_networks("timm") if name.startswith("test_")]
    monkeypatch.setattr(backbones, "list_networks", {"timm": small, "torchvision": []}.get)
    path = tmp_path / "Test-EfficientNet-0123abcd.pth"
    torch.save(rename_tensors(tiny_efficientnet.state_dict()), path)
    problem = get_problem(NotReadyError, open_network, str(path))
    count = len(tiny_efficientnet.state_dict())
    assert f"({count} tensors, net.part0.weight to net.part{count - 1}.bias" in problem.clause
    assert "model.name=timm:test_efficientnet" in problem.corrections
    for fix in problem.corrections:
        assert open_network(str(path), ModelConfig(fix.partition("=")[2])).about.num_classes == 5


#: Differences between efficientnet_lite0 of timm and of TensorFlow.
EFFICIENTNET = ["BatchNorm's epsilon", "normalization of images", "padding (Conv2dSame)"]


@pytest.mark.parametrize(
    ("name", "other", "how"),
    [
        ("efficientnet_lite0", "tf_efficientnet_lite0", EFFICIENTNET),
        ("mobilenetv3_small_050", "tf_mobilenetv3_small_050", None),
        ("vit_tiny_patch16_224", "deit_tiny_patch16_224", EFFICIENTNET[1:2]),
    ],
)
def test_lookalikes_accept_the_same_weights(name, other, how):
    installed = pytest.importorskip("timm").list_models()
    differences = {other.name: other.differences for other in find_lookalikes(f"timm:{name}", {})}
    if how is None:
        assert other not in installed
        assert differences == {}
    else:
        assert differences[f"timm:{other}"] == how
        one, two = (backbones.build_structure(f"timm:{short}", 3, {}) for short in (name, other))
        one.load_state_dict(two.state_dict(), assign=True)  # names and shapes are equal


@pytest.fixture
def lite0_file(tmp_path: Path) -> str:
    """An undescribed file of EfficientNet-Lite0, whose weights fit two networks."""
    timm = pytest.importorskip("timm")
    path = tmp_path / "lite0.pth"
    torch.save(timm.create_model("efficientnet_lite0", num_classes=2).state_dict(), path)
    return str(path)


def test_undescribed_file_notes_its_lookalikes(lite0_file):
    notes = list(iterate_notes(open_network(lite0_file, ModelConfig("timm:efficientnet_lite0"))))
    assert len(notes) == 2
    assert "read as timm:efficientnet_lite0" in notes[0]
    assert ", ".join(EFFICIENTNET) in notes[1]
    assert "also fits timm:tf_efficientnet_lite0, which" in notes[1]


def test_error_states_how_fitting_networks_differ(lite0_file):
    problem = get_problem(NotReadyError, open_network, lite0_file)
    names = ("timm:efficientnet_lite0", "timm:tf_efficientnet_lite0")
    assert problem.corrections == tuple(f"model.name={name}" for name in names)
    assert f"{names[1]} differs in {', '.join(EFFICIENTNET)}" in problem.advice[-1]


def test_suggested_network_resets_stem_and_width(lite0_file):
    config = ModelConfig("resnet18", stem="small", width=0.5, weights=lite0_file)
    problem = get_problem(NotReadyError, open_weights, config)
    assert problem.corrections[0] == (
        "model.name=timm:efficientnet_lite0 model.stem=standard model.width=1.0"
    )


def test_tensors_named_by_efficientnet_pytorch_suggest_tf_first(tmp_path):
    timm = pytest.importorskip("timm")
    state = timm.create_model("tf_efficientnet_lite0", num_classes=2).state_dict()
    state = {
        {"conv_stem.weight": "_conv_stem.weight"}.get(name, f"_{name}"): item
        for name, item in state.items()
    }
    torch.save(state, path := tmp_path / "lite0.pth")
    names = ("timm:tf_efficientnet_lite0", "timm:efficientnet_lite0")
    problem = get_problem(NotReadyError, open_network, str(path))
    assert problem.corrections == tuple(f"model.name={name}" for name in names)
    assert problem.advice[-1].startswith(f"{names[1]} differs in ")


def test_fitting_networks_contain_four_letters_of_file_name(tiny_efficientnet, monkeypatch):
    """The names of file and network are not similar."""
    networks = {"timm": ["test_efficientnet", "test_vit"], "torchvision": []}
    monkeypatch.setattr(backbones, "list_networks", networks.get)
    for name, fitting in (("test.pth", [NAME]), ("tes.pth", [])):
        assert find_fitting_networks(tiny_efficientnet.state_dict(), Path(name)) == fitting

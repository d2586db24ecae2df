"""Every export format: files, model cards, and the networks that a format rejects."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchvision
import yaml
from torch import nn

from resnet_recipes.inference.export import ExportOptions, find_problems
from resnet_recipes.inference.formats import (
    FORMATS,
    compare_logits,
    compute_crop_fraction,
    export,
    format_usage,
)
from resnet_recipes.inference.inputs import PreprocessingNetwork, Program, is_any_size_accepted
from resnet_recipes.inference.model_card import make_model_card
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network
from tests.shared.tiny_networks import build_shallow_resnet18

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
METHOD_SETTINGS = {"blurpool": vars(BlurPool())}


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    torch.manual_seed(0)
    model = build_shallow_resnet18(4)
    BlurPool().modify_model(model)
    classes = ("cat", "dog", "a|b", "<i>")
    about = NetworkDescription(
        "resnet18", 4, classes, METHOD_SETTINGS, eval_size=32, eval_resize=36, top1_percent=71.25
    )
    return Network(model.eval(), about)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["safetensors", "onnx", "exported_program"])
def test_export_matches_at_any_batch_and_image_size(to, network, tmp_path, monkeypatch):
    if to == "onnx":
        for package in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(package)
    assert not list(find_problems(network, to, ExportOptions()))
    read = export(network, to, tmp_path)
    # the last feature map is one pixel
    difference, scale = compare_logits(network.model, read, IMAGES[:, :, :8, :8])
    assert difference < 1e-5 < scale
    assert (tmp_path / FORMATS[to].file).exists()
    monkeypatch.chdir(tmp_path)
    results: dict[str, object] = {}
    exec(format_usage(network, to, True), results)
    images = torch.as_tensor(results.get("images", IMAGES))
    logits = (
        results["logits"] if to == "onnx" else results.get("model", results.get("network"))(images)
    )
    torch.testing.assert_close(torch.as_tensor(logits), network(images))


@pytest.mark.slow
def test_torchvision_and_timm_load_export_strictly(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    torch.manual_seed(0)
    standard = Network(
        torchvision.models.resnet18(num_classes=3).eval(),
        NetworkDescription("resnet18", 3, ("a", "b", "c")),
    )
    for to in ("torchvision", "timm"):
        (tmp_path / to).mkdir()
        assert compare_logits(standard.model, export(standard, to, tmp_path / to), IMAGES)[0] < 1e-5
        monkeypatch.chdir(tmp_path / to)
        results: dict[str, nn.Module] = {}
        exec(format_usage(standard, to, True).replace("FOLDER", "."), results)
        torch.testing.assert_close(results["model"](IMAGES), standard(IMAGES))
    config = json.loads((tmp_path / "timm" / "config.json").read_text())
    assert config["pretrained_cfg"]["label_names"] == ["a", "b", "c"]
    assert config["pretrained_cfg"]["crop_pct"] == 224 / 256


@pytest.mark.parametrize(("size", "resize"), [(192, 225), (224, 256), (72, 112)])
def test_timm_transform_matches_evaluation_sizes(size, resize):
    data = pytest.importorskip("timm.data")
    first = data.create_transform(size, crop_pct=compute_crop_fraction(size, resize)).transforms[0]
    assert first.size == resize


def test_crop_fraction_is_exact_for_every_size():
    for resize in range(8, 513):
        for size in range(8, resize + 1):
            share = compute_crop_fraction(size, resize)
            assert math.floor(size / share) == resize
            assert math.isclose(share, size / resize, rel_tol=1e-15)
    assert compute_crop_fraction(224, 256) == 0.875


def test_formats_without_graph_reject_unsupported_networks(network):
    small = Network(
        network.model, NetworkDescription("resnet18", 4, arguments={"small_stem": True})
    )
    for other, clause in ((network, "support blurpool"), (small, "no ResNet of this stem")):
        for to in ("torchvision", "timm"):
            (problem,) = find_problems(other, to, ExportOptions())
            assert clause in problem.clause
            assert "--to safetensors" in problem.fix
        assert not [*find_problems(other, "safetensors", ExportOptions())]


@pytest.mark.exhaustive
def test_timm_blurred_resnet_differs_from_resnet_with_blurpool():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model("resnetblur50", num_classes=4).eval()
    for blur in (BlurPool(), BlurPool(blur_first=False)):
        ours = torchvision.models.resnet50(num_classes=4)
        blur.modify_model(ours)
        ours.load_state_dict({name: theirs.state_dict()[name] for name in ours.state_dict()})
        difference, scale = compare_logits(ours.eval(), theirs, IMAGES[:1])
        assert difference > 1e-3 * scale


def test_compare_logits_detects_other_or_non_finite_outputs(network):
    def break_last_batch(images: torch.Tensor) -> torch.Tensor:  # the last batch has wide images
        return network.model(images) * (float("nan") if images.shape[2] != images.shape[3] else 1)

    difference, scale = compare_logits(break_last_batch, network.model, IMAGES)
    assert difference != difference
    assert scale != scale
    other = build_shallow_resnet18(4).eval()
    assert compare_logits(network.model, other, IMAGES)[0] > 0.01


@pytest.mark.parametrize("to", FORMATS)
def test_card_has_valid_header_and_code(to, network):
    page = make_model_card(network.about, to, format_usage(network, to, True), "Compared.")
    _, header, rest = page.split("---\n", 2)
    results = yaml.safe_load(header)
    assert results["pipeline_tag"] == "image-classification"
    assert results["model-index"][0]["results"][0]["metrics"] == [
        {"type": "accuracy", "name": "top-1", "value": 71.25}
    ]
    compile(rest.split("```python\n")[1].split("```")[0], "card", "exec")
    assert "a\\|b, &lt;i&gt;" in rest
    assert "blurpool (replace_convs=True" in rest


@pytest.mark.parametrize(("num_classes", "names"), [(5, ["top-1"]), (6, ["top-1", "top-5"])])
def test_card_has_top5_only_of_many_classes(num_classes, names, network):
    about = replace(
        network.about, num_classes=num_classes, classes=(), top5_percent=98.5, eval_examples=2_000
    )
    _, header, rest = make_model_card(about, "onnx", "", "Compared.").split("---\n", 2)
    metrics = yaml.safe_load(header)["model-index"][0]["results"][0]["metrics"]
    assert [metric["name"] for metric in metrics] == names
    assert "| top-1 | 71.25% on 2,000 validation images |" in rest
    assert ("| top-5 | 98.50% on 2,000 validation images |" in rest) == ("top-5" in names)


def test_card_names_weight_type_and_true_family(network):
    lite = replace(network.about, architecture="timm:tf_efficientnet_lite0")
    page = make_model_card(lite, "onnx", "", "Compared.", "int8")
    assert "| weights | int8 |" in page
    assert "- resnet\n" not in page
    page = make_model_card(network.about, "onnx", "", "Compared.")
    assert "| weights | float32 |" in page
    assert "- resnet\n" in page


def test_card_states_accepted_images(network):
    text = format_usage(network, "onnx", any_size=True)
    assert "float32 [N, 3, height, width], any N, height and width; (pixel" in text
    text = format_usage(network, "onnx", any_size=False)
    assert "float32 [N, 3, 32, 32]; (pixel" in text
    whole = Network(PreprocessingNetwork(network.model, network.about), network.about)
    assert '{"images": pixels[None]}' in format_usage(whole, "onnx", any_size=True)


class _SamePadding(nn.Sequential):
    """A convolution with the padding of TensorFlow, which depends on the size of the images."""

    def forward(self, images):
        sides = images.shape[:1:-1]
        excess = [max((math.ceil(side / 2) - 1) * 2 + 3 - side, 0) for side in sides]
        padding = [part for extra in excess for part in (extra // 2, extra - extra // 2)]
        return super().forward(nn.functional.pad(images, padding))


class _Unrolled(nn.Sequential):
    """A convolution after an operation that exporters unroll for the size of the example."""

    def forward(self, images):
        rows = images.unbind(2)
        return super().forward(torch.stack(rows, 2))


def export_padded(model: nn.Module, network: Network, to: str, folder: Path) -> Program:
    assert is_any_size_accepted(model)
    read = export(Network(model, network.about), to, folder)
    difference, scale = compare_logits(model, read, IMAGES)
    assert difference < 1e-5 < scale
    return read


@pytest.mark.parametrize("to", ["onnx", "exported_program"])
@pytest.mark.parametrize("dependent", [_SamePadding, _Unrolled])
def test_export_of_size_dependent_network_accepts_eval_size(dependent, to, network, tmp_path):
    layers = nn.Conv2d(3, 4, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    read = export_padded(dependent(*layers).eval(), network, to, tmp_path)
    assert is_any_size_accepted(read) == (dependent is _SamePadding and to == "onnx")


@pytest.mark.parametrize("to", ["onnx", "exported_program"])
def test_export_with_padding_of_timm_accepts_eval_size(to, network, tmp_path, monkeypatch):
    convolution = pytest.importorskip("timm.layers").Conv2dSame
    layers = convolution(3, 4, 3, 2), convolution(4, 4, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = nn.Sequential(*layers).eval()
    sizes = []
    trace = torch.export.export

    def export_and_keep_size(traced, inputs, **options):
        sizes.append(tuple(inputs[0].shape[2:]))
        return trace(traced, inputs, **options)

    monkeypatch.setattr(torch.export, "export", export_and_keep_size)
    assert not is_any_size_accepted(export_padded(model, network, to, tmp_path))
    assert {*sizes} == {(32, 32)}  # no slow attempt at any size

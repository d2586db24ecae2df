import json
import math

import pytest
import torch
import torchvision
import yaml
from torch import nn

from resnet_recipes.inference.export import problems
from resnet_recipes.inference.formats import (
    TARGETS,
    crop_share,
    export,
    largest_difference,
    usage,
)
from resnet_recipes.inference.inputs import Preprocessed
from resnet_recipes.inference.model_card import model_card
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network.about import About
from resnet_recipes.network.load import Network
from tests.jobs.nursery import shallow_resnet18

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
SURGERY = {"blurpool": vars(BlurPool())}


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A shallow ResNet-18 with BlurPool."""
    monkeypatch.setattr(torchvision.models, "resnet18", shallow_resnet18)
    torch.manual_seed(0)
    model = shallow_resnet18(4)
    BlurPool().modify_model(model)
    classes = ("cat", "dog", "a|b", "<i>")
    about = About("resnet18", 4, classes, SURGERY, eval_size=32, eval_resize=36, top1_percent=71.25)
    return Network(model.eval(), about)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["safetensors", "onnx", "exported_program"])
def test_an_export_gives_the_same_output_at_any_batch_and_image_size(
    to, network, tmp_path, monkeypatch
):
    if to == "onnx":
        for package in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(package)
    assert not list(problems(network, to, folds=False))
    read = export(network, to, tmp_path)
    # the last map is one pixel
    difference, scale = largest_difference(network.model, read, IMAGES[:, :, :8, :8])
    assert difference < 1e-5 < scale
    assert (tmp_path / TARGETS[to].file).exists()
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {"images": IMAGES.numpy()}
    exec(usage(network, to), found)
    logits = found["logits"] if to == "onnx" else found.get("model", found.get("network"))(IMAGES)
    torch.testing.assert_close(torch.as_tensor(logits), network(IMAGES))


@pytest.mark.slow
def test_torchvision_and_timm_load_a_plain_network_strictly(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    torch.manual_seed(0)
    plain = Network(
        torchvision.models.resnet18(num_classes=3).eval(), About("resnet18", 3, ("a", "b", "c"))
    )
    for to in ("torchvision", "timm"):
        (tmp_path / to).mkdir()
        assert largest_difference(plain.model, export(plain, to, tmp_path / to), IMAGES)[0] < 1e-5
        monkeypatch.chdir(tmp_path / to)
        found: dict[str, nn.Module] = {}
        exec(usage(plain, to).replace("FOLDER", "."), found)
        torch.testing.assert_close(found["model"](IMAGES), plain(IMAGES))
    config = json.loads((tmp_path / "timm" / "config.json").read_text())
    assert config["pretrained_cfg"]["label_names"] == ["a", "b", "c"]
    assert config["pretrained_cfg"]["crop_pct"] == 224 / 256


@pytest.mark.parametrize(("size", "resize"), [(192, 225), (224, 256), (72, 112)])
def test_timms_transform_resizes_an_export_as_it_was_evaluated(size, resize):
    data = pytest.importorskip("timm.data")
    first = data.create_transform(size, crop_pct=crop_share(size, resize)).transforms[0]
    assert first.size == resize


def test_the_crop_share_for_timm_is_exact_for_every_pair_of_sizes():
    for resize in range(8, 513):
        for size in range(8, resize + 1):
            share = crop_share(size, resize)
            assert math.floor(size / share) == resize
            assert math.isclose(share, size / resize, rel_tol=1e-15)
    assert crop_share(224, 256) == 0.875


def test_formats_without_a_graph_refuse_what_they_cannot_hold(network):
    small = Network(network.model, About("resnet18", 4, arguments={"small_stem": True}))
    for other, rule in ((network, "support blurpool"), (small, "no ResNet of this stem")):
        for to in ("torchvision", "timm"):
            (problem,) = problems(other, to, folds=False)
            assert rule in problem.clause
            assert "--to safetensors" in problem.fix
        assert not [*problems(other, "safetensors", folds=False)]
    for to, key in {"safetensors": "--fold-batchnorm", "keras": "--to", "onnx": None}.items():
        found = [problem.key for problem in problems(network, to, folds=True)]
        assert found == [key] * bool(key)


@pytest.mark.exhaustive
def test_timms_blurred_resnet_is_a_different_network():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model("resnetblur50", num_classes=4).eval()
    for blur in (BlurPool(), BlurPool(blur_first=False)):
        ours = torchvision.models.resnet50(num_classes=4)
        blur.modify_model(ours)
        ours.load_state_dict({name: theirs.state_dict()[name] for name in ours.state_dict()})
        difference, scale = largest_difference(ours.eval(), theirs, IMAGES[:1])
        assert difference > 1e-3 * scale


def test_outputs_of_another_network_or_that_are_not_numbers_are_a_difference(network):
    def last_broken(images: torch.Tensor) -> torch.Tensor:  # the last batch is the wide one
        return network.model(images) * (float("nan") if images.shape[2] != images.shape[3] else 1)

    difference, scale = largest_difference(last_broken, network.model, IMAGES)
    assert difference != difference
    assert scale != scale
    other = shallow_resnet18(4).eval()
    assert largest_difference(network.model, other, IMAGES)[0] > 0.01


@pytest.mark.parametrize("to", TARGETS)
def test_a_card_has_the_header_of_a_hub_and_code_that_is_python(to, network):
    page = model_card(network.about, to, usage(network, to), "Compared.")
    _, header, rest = page.split("---\n", 2)
    found = yaml.safe_load(header)
    assert found["pipeline_tag"] == "image-classification"
    assert found["model-index"][0]["results"][0]["metrics"] == [
        {"type": "accuracy", "name": "top-1", "value": 71.25}
    ]
    compile(rest.split("```python\n")[1].split("```")[0], "card", "exec")
    assert "a\\|b, &lt;i&gt;" in rest
    assert "blurpool (replace_convs=True" in rest


def test_a_card_says_which_images_a_network_takes(network):
    text = usage(network, "onnx")
    assert "float32 [N, 3, height, width], any N, height and width; (pixel" in text
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    text = usage(Network(fixed, network.about), "onnx")
    assert "float32 [N, 3, 32, 32]; (pixel" in text
    whole = Network(Preprocessed(fixed, network.about), network.about)
    assert '{"images": pixels[None]}' in usage(whole, "onnx")

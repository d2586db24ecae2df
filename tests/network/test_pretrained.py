"""Pretrained weights of a network.

They are found, checked and loaded; the classifier is replaced, and layers are frozen.
"""

import hashlib
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.imagenet import get_wordnet_ids
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.optimizers import OPTIMIZERS
from resnet_recipes.methods.stochastic_depth import StochasticDepth
from resnet_recipes.network import image_settings, pretrained
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.build import build_model
from resnet_recipes.network.load import Network
from resnet_recipes.network.weights import write_weights
from tests.shared.checks import get_error, is_identical
from tests.shared.tables import parse_rows
from tests.shared.tiny_networks import build_narrow_resnet18
from tests.training.recording import record

CONFIG = ModelConfig(name="resnet18")


@pytest.fixture(autouse=True)
def _use_narrow_resnet18(monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    model = build_narrow_resnet18(num_classes=7)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.bias, -1, 1)
    model(torch.randn(8, 3, 32, 32))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


#: As many class names as in the file.
SEVEN = tuple("abcdefg")

#: Fewer class names.
THREE = tuple("abc")


def make_weights_config(path: Path, **changes) -> ModelConfig:
    return replace(CONFIG, weights=str(path), **changes)


def explain_rejected_weights(path: Path | str, classes: tuple[str, ...] = SEVEN, **changes) -> str:
    return str(
        get_error(
            NotReadyError, pretrained.find_weights, make_weights_config(path, **changes), classes
        )
    )


@pytest.mark.parametrize(
    ("theirs", "ours", "positions", "text"),
    parse_rows(
        """
a b c d e f g | a b c d e f g | 0123456 | classifier kept
a b c d e f g | c b a e f g d | 2104563 | classifier kept, its classes reordered
a b c d e f g | ant b c d e f g | - | new classifier for 7 classes (the file has others, as a)
a b c d e f g | a b c | - | new classifier for 3 classes (the file has 7)
- | a b c d e f g | - | new classifier for 7 classes (the file does not name its own)
"""
    ),
)
def test_classifier_is_kept_for_same_class_names(theirs, ours, positions, text, tmp_path):
    trained = build_model(CONFIG, 7, seed=1)
    ours = tuple(ours.split())
    indices = [*map(int, positions.strip("-"))]
    named = tuple(theirs.strip("-").split())
    path = write_weights(trained, tmp_path / "w.pt", NetworkDescription("resnet18", 7, named))
    start = pretrained.find_weights(make_weights_config(path), ours)
    model, fresh = (build_model(CONFIG, len(ours), seed=0) for _ in range(2))
    pretrained.load(model, start)
    expected = trained.state_dict() | {
        name: value[indices] if indices else fresh.state_dict()[name]
        for name, value in trained.state_dict().items()
        if name.startswith("fc.")
    }
    assert is_identical(model.state_dict(), expected)
    assert text in " ".join(start.iterate_details(CONFIG))
    stem = make_weights_config(path, freeze="stem")
    assert "frozen up to stem" in [*start.iterate_details(stem)]
    still = make_weights_config(path, freeze_bn=True)
    assert "BatchNorm statistics frozen" in [*start.iterate_details(still)]
    alone = [*start.iterate_details(replace(still, freeze="backbone"))]
    assert "only the classifier is trained" in alone
    assert not any("frozen" in line for line in alone)


def test_imagenet_classifier_is_kept_for_imagenet_folders(tmp_path):
    model = build_narrow_resnet18(num_classes=1000)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    folders = get_wordnet_ids()
    assert (
        pretrained.find_weights(make_weights_config(tmp_path / "w.pt"), folders).classifier_text
        == "classifier kept"
    )
    turned = pretrained.find_weights(make_weights_config(tmp_path / "w.pt"), folders[::-1])
    assert torch.equal(turned.tensors["fc.weight"], model.fc.weight.flip(0))
    others = pretrained.find_weights(
        make_weights_config(tmp_path / "w.pt"), (*folders[1:], "zebra")
    )
    assert "new classifier" in others.classifier_text


def test_stochastic_depth_starts_with_output_of_file(weights_file):
    standard = build_narrow_resnet18(num_classes=7)
    deep = build_narrow_resnet18(num_classes=7)
    standard.load_state_dict(torch.load(weights_file, weights_only=True))
    StochasticDepth(drop_rate=0.3).modify_model(deep)
    BlurPool().modify_model(deep)
    BlurPool().modify_model(standard)
    pretrained.load(deep, pretrained.find_weights(make_weights_config(weights_file), SEVEN))
    standard.fc = deep.fc
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(deep.eval()(images), standard.eval()(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("layer2.0.conv1.weight"),
        lambda state: state["conv1.weight"].fill_(float("nan")),
        lambda state: state.update({"bn1.bias": torch.ones(8, dtype=torch.int64)}),
    ],
)
def test_unfit_weights_are_rejected_naming_their_file_once(change, weights_file, tmp_path):
    state = torch.load(weights_file, weights_only=True)
    change(state)
    torch.save(state, tmp_path / "odd.pt")
    assert explain_rejected_weights(tmp_path / "odd.pt").count("odd.pt") == 1


def test_weights_of_another_stem_or_width_suggest_settings(weights_file, tmp_path):
    assert "model.name=resnet18" in explain_rejected_weights(weights_file, name="resnet34")
    assert "model.stem=standard\n" in explain_rejected_weights(weights_file, stem="small") + "\n"
    small = replace(CONFIG, stem="small", width=0.125)
    path = write_weights(
        build_model(small, 7, seed=0),
        tmp_path / "s.pt",
        NetworkDescription("resnet18", 7, arguments=small.arguments),
    )
    assert "model.stem=small model.width=0.125" in explain_rejected_weights(path)
    whole = "model.name=resnet18 model.stem=small model.width=0.125"
    assert whole in explain_rejected_weights(path, name="resnet50")
    assert (
        pretrained.find_weights(replace(small, weights=str(path)), SEVEN).network.about.num_classes
        == 7
    )


def test_first_convolution_sums_color_weights_for_gray_images(weights_file):
    gray = make_weights_config(weights_file, in_channels=1)
    start = pretrained.find_weights(gray, SEVEN)
    assert "summed over colors" in " ".join(start.iterate_details(gray))
    summed = torch.load(weights_file, weights_only=True)["conv1.weight"].sum(1, keepdim=True)
    assert torch.equal(start.tensors["conv1.weight"], summed)


def test_timm_weights_state_fit_of_non_square_images():
    pytest.importorskip("timm")
    for name, fit in {"fb_in22k_ft_in1k_384": "squash", "fb_in1k": "crop"}.items():
        config = ModelConfig(name="timm:convnext_base", weights=f"timm:convnext_base.{name}")
        images = image_settings.find_image_settings(config.name, config.weights)
        assert images["fit"] == fit
        network = Network(nn.Linear(1, 1), NetworkDescription("timm:convnext_base", 1, **images))
        text = " ".join(
            pretrained.PretrainedWeights(network, {}, "").iterate_notes(config, DataConfig())
        )
        assert ("data.fit=squash" in text) == (fit == "squash")


def test_torchvision_weights_are_read_from_cache_and_checksummed(
    weights_file, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name = hashlib.sha256(weights_file.read_bytes()).hexdigest()[:8]
    member = torchvision.models.ResNet18_Weights.DEFAULT
    message = explain_rejected_weights("torchvision")
    assert "or copy https://download.pytorch.org/models/resnet18-" in message
    assert "torchvision.models.resnet18(weights='IMAGENET1K_V1')\"\n" in message
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / Path(member.url).name).write_bytes(weights_file.read_bytes())
    assert "has a wrong checksum" in explain_rejected_weights("torchvision")
    monkeypatch.setattr(type(member), "url", f"https://example.org/resnet18-{name}.pth")
    (cache / f"resnet18-{name}.pth").write_bytes(weights_file.read_bytes())
    start = pretrained.find_weights(replace(CONFIG, weights="torchvision"), SEVEN)
    assert start.network.about.num_classes == 7
    images = DataConfig(eval_size=192, eval_interpolation="bicubic")
    text = " ".join(start.iterate_notes(replace(CONFIG, weights="torchvision"), images))
    assert (
        "the weights were published with "
        "data.eval_resize=256 data.eval_size=224 data.eval_interpolation=bilinear"
    ) in text
    assert "torchvision:IMAGENET1K_V1" in explain_rejected_weights("torchvision:V9")


def test_timm_weights_are_read_from_hub_cache(weights_file, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert "hf download timm/resnet18.a1_in1k model.safetensors" in explain_rejected_weights(
        "timm:resnet18.a1_in1k"
    )
    message = explain_rejected_weights("timm:resnet18.a9_in1k")
    assert "has an unknown tag, a9_in1k" in message
    assert re.search(r"model.weights=timm:resnet18\.a\d_in1k", message)
    snapshot = tmp_path / "models--timm--resnet18.a1_in1k" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    safetensors.torch.save_file(
        torch.load(weights_file, weights_only=True), snapshot / "model.safetensors"
    )
    for name in ("timm:resnet18.a1_in1k", "hf:timm/resnet18.a1_in1k"):
        start = pretrained.find_weights(replace(CONFIG, weights=name), SEVEN)
        assert torch.equal(start.tensors["bn1.bias"], torch.load(weights_file)["bn1.bias"])
        about = start.network.about
        assert (about.eval_resize, about.eval_interpolation) == (235, "bicubic")


@pytest.mark.parametrize(
    ("variable", "folder"),
    [("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_hub_cache_follows_environment_variables(variable, folder, tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert f"{tmp_path / folder / 'models--me--net'} has no" in explain_rejected_weights(
        "hf:me/net"
    )


@pytest.mark.parametrize(
    ("setting", "unchanged"),
    [
        ("freeze=layer1", r"(conv1|bn1|layer1)\..*"),
        ("freeze_bn=true", r".*\.(running_mean|running_var|num_batches_tracked)"),
    ],
)
def test_frozen_parts_keep_weights_or_statistics(setting, unchanged, make_run):
    run = make_run(f"max_duration=3ba schedule.warmup=0ba model.weights=unread model.{setting}")
    before = deepcopy(run.model.state_dict())
    record(run)
    after = run.model.state_dict()
    equal = {name for name in after if torch.equal(after[name], before[name])}
    assert equal == {name for name in after if re.fullmatch(unchanged, name)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_backbone_rate_scales_only_the_backbone(optimizer):
    model = build_model(CONFIG, 3, seed=0)
    settings = optimizer(lr=0.5, weight_decay=0.01, no_decay="one_dimensional", backbone_rate=0.1)
    groups = settings.build(model).param_groups
    assert [(group["lr_factor"], len(group["params"])) for group in groups] == [
        (0.1, 21),
        (1.0, 1),
        (0.1, 42),
        (1.0, 1),
    ]
    assert {group["lr_factor"] for group in optimizer().build(model).param_groups} == {1.0}
    assert "backbone rate 0.1" in settings.text()


def test_freezing_random_weights_is_rejected():
    assert [problem.key for problem in replace(CONFIG, freeze="stem").problems()] == ["freeze"]
    assert not list(make_weights_config(Path("weights.pt"), freeze="stem").problems())
    random = replace(CONFIG, freeze_bn=True)
    assert [problem.fix for problem in random.problems()] == ["model.freeze_bn=false"]
    assert not list(make_weights_config(Path("weights.pt"), freeze_bn=True).problems())


def test_weights_of_a_file_get_no_image_note(weights_file):
    images = DataConfig(eval_size=192)
    config = make_weights_config(weights_file)
    assert list(pretrained.find_weights(config, SEVEN).iterate_notes(config, images)) == []
    published_as = replace(config, weights="torchvision")
    assert list(pretrained.find_weights(config, SEVEN).iterate_notes(published_as, images))

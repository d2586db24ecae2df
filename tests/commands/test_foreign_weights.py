"""Weights of another program, used by every command and compared with that program.

A small timm network with random weights represents published weights: it uses levels of 0.5 / 0.5
and bicubic images, and its 1,000 outputs have no names. benchmarks/pretrained.py uses real weights.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import resnet_recipes as rr
from resnet_recipes import backbones
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.data.imagenet import get_wordnet_ids
from tests.shared.tables import read_csv_rows

timm = pytest.importorskip("timm")

#: Labels of the image folders: some ImageNet classes, but not the first.
IMAGENET_LABELS = (3, 217, 482, 999)
NETWORK_SETTING = "model.name=timm:test_vit"


@pytest.fixture(autouse=True)
def _list_few_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare files with few networks: building those of similar names takes seconds."""
    few = [
        name
        for name in backbones.list_networks("timm")
        if name.startswith("test_") or name.endswith("efficientnet_lite0")
    ]
    networks = {"timm": few, "torchvision": ["resnet18"]}
    monkeypatch.setattr(backbones, "list_networks", networks.get)


@pytest.fixture
def timm_logits() -> dict[str, torch.Tensor]:
    """Return the timm logits of each image in ./some; the weights are in ./theirs.pth."""
    torch.manual_seed(0)
    model = timm.create_model("test_vit").eval()
    model.head.weight.data.mul_(30)  # without this, all logits of random weights are similar
    torch.save(model.state_dict(), "theirs.pth", _use_new_zipfile_serialization=False)
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    rng = np.random.default_rng(0)
    logits = {}
    for label in IMAGENET_LABELS:
        folder = Path("some/val", get_wordnet_ids()[label])
        folder.mkdir(parents=True)
        for number in range(3):
            small = rng.integers(256, size=(5, 7, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((260 + 30 * number, 200))
            image.save(folder / f"{number}.png")
            with torch.inference_mode():
                logits[str((folder / f"{number}.png").absolute())] = model(transform(image)[None])[
                    0
                ]
    return logits


def test_foreign_weights_predict_as_in_their_library(timm_logits, run_command):
    """For eval, predict and Python: the same classes, and probabilities within 0.01."""
    run_command(f"resnet-recipes eval theirs.pth {NETWORK_SETTING} data=some --images eval.csv")
    run_command(
        f"resnet-recipes predict theirs.pth {NETWORK_SETTING} some/val --top 1 --csv predict.csv"
    )
    rows = {
        row["path"]: (row["prediction"], row["probability"]) for row in read_csv_rows("eval.csv")
    }
    others = {
        row["file"]: (row["class_1"], row["probability_1"]) for row in read_csv_rows("predict.csv")
    }
    network = rr.load("theirs.pth", NETWORK_SETTING)
    assert rows.keys() == others.keys() == timm_logits.keys()
    for path, logits in timm_logits.items():
        share, label = logits.softmax(0).max(0)
        with torch.no_grad():
            actual = network(network.transform(path)[None])[0]
        torch.testing.assert_close(actual, logits, rtol=0.02, atol=0.02)
        for name, probability in (rows[path], others[path]):
            assert name == get_wordnet_ids()[int(label)]
            assert float(probability) == pytest.approx(float(share), abs=0.01)


def test_eval_measures_foreign_weights_on_some_imagenet_classes(timm_logits, run_command):
    result = run_command(f"resnet-recipes eval theirs.pth {NETWORK_SETTING} data=some --json")
    report = json.loads(result.out)
    right = sum(
        get_wordnet_ids()[int(logits.argmax())] == Path(path).parent.name
        for path, logits in timm_logits.items()
    )
    assert report["top1_percent"] == pytest.approx(100 * right / 12)
    assert (report["eval_size"], report["eval_resize"]) == (160, 168)
    assert {row["class"] for row in report["classes"]} == {
        get_wordnet_ids()[each] for each in IMAGENET_LABELS
    }
    assert "read as timm:test_vit with images normalized by a mean of 0.5/0.5/0.5" in result.err
    Path("some/val/n0").mkdir()
    Path("some/val/n0/a.png").write_bytes(Path(next(iter(timm_logits))).read_bytes())
    result = run_command(f"resnet-recipes eval theirs.pth {NETWORK_SETTING} data=some", 3).err
    assert "has 5 classes; the network has 1,000 ImageNet classes\n" in result
    assert "hint:  resnet-train finetune trains a network for other classes" in result


def test_exported_foreign_weights_predict_the_same(timm_logits, run_command):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    arguments = f"{NETWORK_SETTING} data=some --to onnx --with-preprocessing --out out"
    run_command(f"resnet-recipes export theirs.pth {arguments}")
    session = onnxruntime.InferenceSession("out/model.onnx")
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    for path, logits in timm_logits.items():
        pixels = np.asarray(Image.open(path))[None]
        (shares,) = session.run(["probabilities"], {"images": pixels})
        assert classes[shares[0].argmax()] == get_wordnet_ids()[int(logits.argmax())]


def test_weights_without_network_name_suggest_settings(timm_logits, run_command):
    Path("theirs.pth").rename("test_vit.pth")
    message = run_command("resnet-recipes eval test_vit.pth data=some", 3).err
    assert f"{NETWORK_SETTING}\n" in message
    Path("test_vit.pth").rename("mine.pth")
    message = run_command("resnet-recipes eval mine.pth data=some", 3).err
    assert "hint:  name the network: model.name=timm:NAME or" in message
    Path("mine.pth").rename("test_vit.pth")
    message = run_command("resnet-recipes plan finetune model.weights=test_vit.pth", 3).err
    assert f"use:   {NETWORK_SETTING}\n" in message
    message = run_command("resnet-recipes eval test_vit.pth --model timm:test_vit data=some", 2).err
    line = f"resnet-recipes eval test_vit.pth data=some {NETWORK_SETTING}"
    assert line in message
    run_command(line)
    with pytest.raises(RecipeError, match="cannot be changed here"):
        rr.load("test_vit.pth", NETWORK_SETTING, "data.eval_size=64")


def test_undescribed_teacher_suggests_an_export(timm_logits, run_command, monkeypatch):
    monkeypatch.setattr("resnet_recipes.inference.export.COMPARED_IMAGES", 2)
    sizes = "data.train_size=160 data.eval_size=160 data.eval_resize=160"
    plan = f"resnet-recipes plan small {sizes} methods.distill.teacher="
    Path("theirs.pth").rename("test_vit.pth")
    message = run_command(f"{plan}test_vit.pth", 3).err
    path = Path("test_vit.pth")
    command = f"resnet-recipes export {path} {NETWORK_SETTING} --to safetensors --out teacher"
    assert f"try:   {command}\n" in message
    run_command(command)
    assert "teacher timm:test_vit" in " ".join(
        run_command(f"{plan}teacher/model.safetensors").out.split()
    )
    path.rename("mine.pth")
    message = " ".join(run_command(f"{plan}mine.pth", 3).err.split())
    assert "hint: resnet-recipes export" in message
    assert "model.name=timm:NAME --to safetensors --out teacher writes teacher/model" in message


def test_notes_print_commands_on_separate_lines(run_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TORCH_HOME", "nowhere")
    output = run_command("resnet-recipes plan finetune model.name=resnet18").out
    command = "torchvision.models.resnet18(weights='IMAGENET1K_V1')"
    assert f'\n  try        python3 -c "import torchvision; {command}"\n' in output


def test_recipe_with_foreign_weights_uses_their_normalization():
    model = timm.create_model("test_vit", num_classes=3)
    torch.save(model.state_dict(), "w.pth")
    arguments = ("finetune", "model.name=timm:test_vit", "model.weights=w.pth")
    recipe = rr.compose(*arguments)
    assert (recipe.data.mean, recipe.data.std) == ((127.5,) * 3, (127.5,) * 3)
    assert rr.compose(*arguments, "data.mean=[1,2,3]").data.mean == (1, 2, 3)
    assert rr.compose("finetune").data.mean == (123.675, 116.28, 103.53)


def test_advised_network_removes_unsupported_methods(image_folder, run_command):
    torch.save(timm.create_model("tf_efficientnet_lite0", num_classes=2).state_dict(), "lite0.pth")
    command = f"resnet-train small model.weights=lite0.pth data={image_folder} bs=8 --dry-run"
    lines = [line.strip() for line in run_command(command, 3).err.splitlines()]
    advice = [line.removeprefix("use:") for line in lines if line.startswith("use:")]
    assert any(one.endswith(" '~methods.blurpool'") for one in advice)
    for one in advice:
        run_command(f"{command} {one}")


def test_plan_does_not_doubt_the_named_network(timm_logits, run_command):
    arguments = f"finetune data.backend=synthetic {NETWORK_SETTING} model.weights=theirs.pth"
    out = run_command(f"resnet-train {arguments} --dry-run").out
    assert "theirs.pth" in out
    assert "the file does not describe its network" not in " ".join(out.split())

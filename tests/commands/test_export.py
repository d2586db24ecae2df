"""`resnet-recipes export`: each export is compared with the network that it came from."""

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.base.text import do_nothing
from resnet_recipes.command_line.run_arguments import open_trained_network
from resnet_recipes.commands.export import USAGE
from resnet_recipes.data.images.decode import Picture, read_file
from resnet_recipes.inference import formats
from resnet_recipes.inference.export import (
    ExportOptions,
    _generate_images,
    _load_decoded_images,
    _load_images,
    export_and_check,
)
from resnet_recipes.inference.trained_network import TrainedNetwork
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.recipe.frozen_recipe import freeze, read

pytestmark = pytest.mark.usefixtures("folder_with_weights")


@pytest.fixture
def trained(folder_with_weights: Path) -> TrainedNetwork:
    return open_trained_network(["mine"], USAGE).to_device()


@pytest.fixture
def replace_format(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces functions of an export format."""
    return lambda name, **functions: monkeypatch.setitem(
        formats.FORMATS, name, formats.FORMATS[name]._replace(**functions)
    )


def test_export_is_compared_and_has_a_card(folder_with_weights, tmp_path, run_command):
    output = run_command("resnet-recipes export mine --to safetensors --out new/folder").out
    assert re.search(r"in resnet_recipes: logits are equal on\s+30 validation images", output)
    assert "network   model.safetensors, safetensors format, " in output
    out = tmp_path / "new/folder"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "model.safetensors"]
    assert load(out / "model.safetensors").about == load(folder_with_weights).about


def test_export_compares_without_fetching_remote_images(run_command, monkeypatch):
    monkeypatch.setattr("resnet_recipes.data.fetch", lambda config, **_: None)
    output = run_command("resnet-recipes export mine --to safetensors --out out").out
    assert "on 64 random images" in output


def test_export_requests_no_address_from_a_run_folder(
    folder_with_weights, run_command, monkeypatch
):
    recipe = read(folder_with_weights / "config.yaml")
    recipe.data.root = "http://127.0.0.1:9/images"
    (folder_with_weights / "config.yaml").write_text(freeze(recipe))
    monkeypatch.setattr("resnet_recipes.data.fetch", None)
    output = run_command("resnet-recipes export mine --to safetensors --out out").out
    assert "on 64 random images" in output
    command = "resnet-recipes export mine --to safetensors --dtype float16 --out half"
    message = run_command(command, 3).err
    assert "comes from the run folder alone" in message
    assert "use:   data=http://127.0.0.1:9/images\n" in message
    assert not Path("half").exists()


def test_export_records_settings_and_drops_their_old_accuracy(run_command, folder_with_weights):
    network = load(folder_with_weights)
    measured = replace(network.about, top1_percent=50.0, eval_examples=30)
    write_weights(network.model, folder_with_weights / "weights.safetensors", measured)
    run_command("resnet-recipes export mine --to safetensors --out own")
    assert load("own/model.safetensors").about == measured
    settings = "data.eval_size=24 data.eval_interpolation=bicubic evaluation.flip=true"
    run_command(f"resnet-recipes export mine {settings} --to safetensors --out other")
    about = load("other/model.safetensors").about
    assert (about.eval_size, about.eval_interpolation, about.flip) == (24, "bicubic", True)
    assert (about.top1_percent, about.eval_examples) == (None, 0)
    card = Path("other/README.md").read_text()
    assert "(bicubic, antialiased), center crop of 24 px" in card


def test_export_compares_images_of_all_classes(trained, monkeypatch):
    """Ten classes have three images each; ranges of int8 activations come from these images."""
    everything, _ = _load_images(trained, False)
    monkeypatch.setattr("resnet_recipes.inference.export.COMPARED_IMAGES", 10)
    chosen, text = _load_images(trained, False)
    numbers = [[torch.equal(image, other) for other in everything].index(True) for image in chosen]
    assert text == "10 validation images"
    assert [number // 3 for number in numbers] == list(range(10))


def test_export_names_a_damaged_image(trained):
    damaged = "images/val/pattern0/0.jpg"
    Path(damaged).write_text("no image")
    with pytest.raises(TrainingError, match=damaged):
        _load_decoded_images(trained)


def test_documented_programs_read_16_bit_gray_like_predict(folder_with_weights):
    deep = (np.arange(40 * 50, dtype=np.uint16) * 32).reshape(40, 50)
    Image.fromarray(deep).save("cat.jpg", "PNG")
    network = load(folder_with_weights)
    expected = Picture(read_file("cat.jpg")).crop(0, 0, 40, 50)
    assert 0 < expected.mean() < 255
    assert torch.equal(network.transform(Image.open("cat.jpg")), network.transform("cat.jpg"))
    texts = [each.use_preprocessed for each in formats.FORMATS.values()]
    page = Path(__file__).parents[2] / "docs/howto/deploy.md"
    read = re.findall(r"^image = (?:.*\n)+?pixels = .*$", "\n".join(texts) + page.read_text(), re.M)
    assert len(read) == 4
    for code in read:
        names = {"Image": Image, "np": np, "numpy": np, "torch": torch}
        exec(code, names)
        assert np.array_equal(names["pixels"], expected)


def test_export_comparison_reads_16_bit_gray_as_documented(trained):
    for path in Path().glob("images/val/*/0.jpg"):
        Image.fromarray(np.full((40, 50), 30_000, np.uint16)).save(path, "PNG")
    pictures, _ = _load_decoded_images(trained)
    deep = [picture for picture in pictures if picture[1].shape == (40, 50, 3)]
    assert deep
    for transformed, pixels in deep:
        assert (pixels == 30_000 >> 8).all()
        again = trained.network.transform(Image.fromarray(pixels))
        assert torch.equal(transformed, again)


def test_export_compares_generated_images_smooth_like_photographs():
    steps = [
        np.abs(np.diff(np.asarray(drawn).astype(int), axis=1)).mean()
        for drawn in _generate_images()
    ]
    assert max(steps) < 20  # random images differ by 85


def test_export_reports_progress_by_compared_images(trained, tmp_path):
    progress = []

    def show(*counts: int) -> None:
        progress.append(counts)

    export_and_check(trained, "safetensors", tmp_path / "out", ExportOptions(), show)
    assert progress == [(0, 30), (16, 30), (30, 30), (30, 30)]  # three images again, enlarged


@pytest.mark.parametrize("to", ["safetensors", "exported_program"])
def test_float16_export_halves_file_and_compares_all_images(
    to, folder_with_weights, run_command, run_json, tmp_path
):
    flip = "evaluation.flip=true"
    output = run_command(
        f"resnet-recipes export mine {flip} --to {to} --dtype float16 --out float16"
    ).out
    if to == "safetensors":  # the other formats also contain code
        whole = (folder_with_weights / "weights.safetensors").stat().st_size
        assert 0.45 < Path("float16/model.safetensors").stat().st_size / whole < 0.6
    before, after = re.search(r"images: ([\d.]+)%\s+before,\s+([\d.]+)%", output).groups()
    report = run_json(f"resnet-recipes eval mine {flip}")
    assert float(before) == pytest.approx(report["top1_percent"], abs=0.01)
    assert abs(float(after) - float(before)) <= 0.5
    images = torch.randn(5, 3, 32, 32)
    read = formats.FORMATS[to].read(tmp_path / "float16" / formats.FORMATS[to].file, None)
    with torch.no_grad():
        logits = read(images)
        expected = load(folder_with_weights)(images)
    assert logits.dtype == torch.float32
    assert 0 < (logits - expected).abs().max() < 0.02 * expected.abs().max()


def test_int8_export_is_smaller_and_keeps_description(folder_with_weights, run_command, tmp_path):
    output = run_command(
        "resnet-recipes export mine --to onnx --dtype int8 --lose 100 --out int8"
    ).out
    assert re.search(r"images: [\d.]+%\s+before,\s+[\d.]+%\s+after", output)
    file = tmp_path / "int8" / "model.onnx"
    assert file.stat().st_size < 0.55 * (folder_with_weights / "weights.safetensors").stat().st_size
    session = onnxruntime.InferenceSession(file)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == list(load(folder_with_weights).classes)
    images = torch.stack([load(folder_with_weights).transform("images/val/pattern0/1.jpg")] * 3)
    (logits,) = session.run(["logits"], {"images": images.numpy()})
    with torch.no_grad():
        expected = load(folder_with_weights)(images)
    difference = (torch.from_numpy(logits) - expected).abs().max()
    assert 0 < difference < 0.2 * expected.abs().max()
    output = run_command(
        "resnet-recipes export mine --to exported_program --dtype int8 --out o", 2
    ).err
    assert "--dtype" in output
    assert "--to onnx" in output


def test_export_lines_fit_the_terminal(run_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    streams = run_command(
        "resnet-recipes export mine --to safetensors --dtype float16 --lose 100 --out out"
    )
    lines = [*streams.out.splitlines(), *streams.err.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "Top-1 on all validation images" in " ".join(streams.out.split())


def test_export_measures_accuracy_of_file_in_float32(
    replace_format, run_command, folder_with_weights
):
    uses_autocast = []
    recipe = read(folder_with_weights / "config.yaml")
    recipe.precision.dtype = "bf16"
    (folder_with_weights / "config.yaml").write_text(freeze(recipe))

    def compute(images: torch.Tensor) -> torch.Tensor:
        uses_autocast.append(torch.is_autocast_enabled("cpu"))
        return torch.eye(10)[[3] * len(images)]

    replace_format("safetensors", read=lambda path, about: compute)
    command = "export mine --to safetensors --dtype float16 --lose 100"
    assert re.search(r"before,\s+10.00%", run_command(f"resnet-recipes {command} --out out").out)
    assert not any(uses_autocast)


def test_export_suggests_a_sufficient_loss_limit(replace_format, run_command):
    def compute(images: torch.Tensor) -> torch.Tensor:
        return right_once[: len(images)]

    # three images per class: the file recognizes the first image only
    right_once = torch.eye(10)[[0, *(number // 3 - 1 for number in range(1, 30))]]
    replace_format("safetensors", read=lambda path, about: compute)
    command = "resnet-recipes export mine --to safetensors --dtype float16 --lose 0.1 --out out"
    message = run_command(command, 1).err
    lost = float(re.search(r"loses ([\d.]+) points", message)[1])
    limit = float(re.search(r"use:   --lose (\d+)\n", message)[1])
    assert lost % 1 > 0
    assert lost <= limit < lost + 1


def test_export_with_too_much_loss_is_not_written(trained, tmp_path):
    options = ExportOptions(lose=-1.0)  # any loss is larger
    with pytest.raises(TrainingError, match=r"loses 0\.00 points .*--lose allows -1.*\n.*--lose 0"):
        export_and_check(trained, "safetensors", tmp_path / "out", options, do_nothing)
    assert not (tmp_path / "out").exists()
    trained.model.conv1.weight.data.mul_(1e7)
    options = ExportOptions(dtype="float16")
    with pytest.raises(TrainingError, match="some weights exceed 65,504"):
        export_and_check(trained, "safetensors", tmp_path / "out", options, do_nothing)


def test_export_without_images_compares_generated_ones(run_command):
    Path("images").rename("moved")
    out = run_command("resnet-recipes export mine --to exported_program --out out").out
    assert "on 64 random images" in out
    message = run_command("resnet-recipes export mine --to onnx --dtype float16 --out a", 3).err
    assert "images does not exist" in message
    assert not Path("a").exists()


def test_export_with_fixed_size_states_the_size(folder_with_weights, replace_format, run_command):
    network = load(folder_with_weights)

    def compute(images: torch.Tensor) -> torch.Tensor:
        assert images.shape[2:] == (32, 32)
        return network(images)

    replace_format(
        "exported_program",
        write=lambda network, path: path.touch(),
        read=lambda path, about: compute,
    )
    output = run_command("resnet-recipes export mine --to exported_program --out out").out
    assert "only for images of 32 x 32 px (any size: --with-preprocessing)" in " ".join(
        output.split()
    )
    assert "float32 [N, 3, 32, 32]" in Path("out/README.md").read_text()


@pytest.mark.parametrize("flag", ["", "--with-preprocessing"])
def test_export_with_different_outputs_is_deleted(flag, tmp_path, replace_format, run_command):
    replace_format(
        "exported_program",
        write=lambda network, path: path.touch(),
        read=lambda path, about: lambda images: torch.full((len(images), 10), 0.3),
    )
    message = run_command(
        f"resnet-recipes export mine --to exported_program {flag} --out out", 1
    ).err
    assert re.search("computes different results: (logits|probabilities) differ by", message)
    assert "nothing was written" in message
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_export_on_full_disk_is_reported_and_deleted(tmp_path, monkeypatch, run_command):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(Path, "write_bytes", Mock(side_effect=full))
    message = run_command("resnet-recipes export mine --to exported_program --out out", 3).err
    assert "cannot be written: No space left on device" in message
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.timeout(600)  # torch takes minutes to write a graph on a busy machine
def test_export_with_preprocessing_predicts_like_predict(run_command, run_json):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    output = run_command("resnet-recipes export mine --to onnx --with-preprocessing --out out").out
    assert "probabilities" in output
    photos = sorted(Path().glob("images/val/*/0.jpg"))
    for index, path in enumerate(photos):
        Image.open(path).resize((40 + 9 * index, 90 - 5 * index)).save(path)
    paths = " ".join(map(str, photos))
    predicted = run_json(f"resnet-recipes predict mine {paths} --top 10")
    session = onnxruntime.InferenceSession("out/model.onnx")
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    for path, one in zip(photos, predicted, strict=True):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        probabilities = session.run(["probabilities"], {"images": pixels[None]})[0][0]
        expected = {row["class"]: row["probability"] for row in one["classes"]}
        assert dict(zip(classes, probabilities.tolist(), strict=True)) == pytest.approx(
            expected, abs=1e-3
        )


def test_export_without_package_suggests_install_command(monkeypatch, run_command):
    monkeypatch.setattr("resnet_recipes.base.extras.find_spec", lambda name: None)
    message = run_command("resnet-recipes export mine --to onnx --out out", 3).err
    assert suggest_install("export") in message

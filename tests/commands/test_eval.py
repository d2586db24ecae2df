"""`resnet-recipes eval` of runs and weights files, with its table of images."""

import base64
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image

from resnet_recipes import data
from resnet_recipes.commands.eval import _format_tables
from resnet_recipes.data.base import Batching, DataConfig, normalize
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.recipe.frozen_recipe import freeze, read, to_tree
from resnet_recipes.report.progress import ProgressLine
from tests.shared.images import CLASSES, create_random_images
from tests.shared.tables import read_csv_rows
from tests.shared.tiny_networks import build_shallow_resnet18


@pytest.fixture
def run_eval(folder_with_weights: Path, run_json: Callable[..., Any]) -> Callable[..., dict | list]:
    return lambda arguments="", of="mine": run_json(f"resnet-recipes eval {of} {arguments}")


def evaluate_in_loop(
    run: Path, size: int = 32, resize: int = 36
) -> tuple[float, float, dict[str, int]]:
    """Return top-1, loss and correct images by class, counted in a loop over the images."""
    config = read(run / "config.yaml").data
    config.eval_size, config.eval_resize = size, resize
    network = load(run)
    loader = data.open_eval(config, data.survey_images(config), Batching(0, 1, 8, 8, 0))
    right, loss = {}, 0.0
    for raw in loader.batches():
        with torch.no_grad():
            logits = network(normalize(raw.pixels))
        for row, label in zip(logits, raw.labels.tolist(), strict=True):
            name = network.classes[label]
            right[name] = right.get(name, 0) + int(row.argmax() == label)
            loss += float(F.cross_entropy(row, torch.tensor(label))) / 30
    return 100 * sum(right.values()) / 30, loss, right


def count_right(report: dict) -> dict[str, int]:
    """Return the number of correctly classified images of each class."""
    return {row["class"]: row["correct"] for row in report["classes"]}


def test_eval_of_run_equals_loop_over_images(folder_with_weights, run_eval):
    report = run_eval()
    top1, loss, by_class = evaluate_in_loop(folder_with_weights)
    assert (report["top1_percent"], report["eval_examples"]) == (pytest.approx(top1), 30)
    assert report["loss"] == pytest.approx(loss, abs=1e-4)
    assert count_right(report) == by_class
    assert all(row["class"] != row["predicted"] for row in report["confusions"])


def test_eval_fetches_remote_images_with_progress(folder_with_weights, run_eval, monkeypatch):
    asked = []

    def fetch(config: DataConfig, progress: ProgressLine | None = None, **_) -> DataConfig:
        asked.append(progress.task if progress else "opened")
        return config

    monkeypatch.setattr(data, "fetch", fetch)
    run_eval()
    assert asked == [f"fetching {folder_with_weights.parent / 'images'}", "opened"]


def test_eval_requests_no_address_from_a_run_folder(folder_with_weights, run_command, monkeypatch):
    recipe = read(folder_with_weights / "config.yaml")
    recipe.data.root, recipe.data.cache = "http://127.0.0.1:9/images", "elsewhere"
    (folder_with_weights / "config.yaml").write_text(freeze(recipe))
    monkeypatch.setattr(data, "fetch", None)
    message = run_command("resnet-recipes eval mine", 3).err
    assert "comes from the run folder alone" in message
    command = "resnet-recipes eval mine data=http://127.0.0.1:9/images data.cache=elsewhere"
    assert f"try:   {command}\n" in message


def test_eval_wraps_lines_on_narrow_terminals(folder_with_weights, run_command, monkeypatch):
    for columns, heads in ((36, "TOP-1 IMAGES F1 CLASS"), (80, "TOP-1 IMAGES PRECISION F1 CLASS")):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run_command("resnet-recipes eval mine data=images").out.splitlines()
        assert heads.split() in [line.split() for line in lines]
        assert (
            max(len(line) for line in lines if str(folder_with_weights.parent) not in line)
            <= columns
        )


@pytest.mark.parametrize("flag", ["--csv", "--images"])
def test_eval_never_overwrites_the_image_table(folder_with_weights, flag, run_command, monkeypatch):
    monkeypatch.setenv("HOME", str(folder_with_weights.parent))
    rows = [f"{path},{path.parent.name}" for path in Path().glob("images/val/*/*")]
    table = Path("images/labels.csv")
    table.write_text("\n".join(["path,label", *rows]).replace("images/", ""))
    before = table.read_bytes()
    for root, name in (("images/labels.csv", table), ("images", "'~/images/labels.csv'")):
        message = run_command(f"resnet-recipes eval mine data={root} {flag} {name}", 2).err
        assert "already exists, and nothing is overwritten" in message
    assert table.read_bytes() == before


def test_eval_reports_missing_runs_and_images_at_once(run_command):
    message = run_command("resnet-recipes eval first second data=nowhere", 3).err
    for name in ("`first`", "`second`", "data=nowhere"):
        assert f"{name} does not exist" in message


@pytest.mark.parametrize("command", ["eval mine data=images", "predict mine images"])
def test_gallery_never_replaces_a_report(folder_with_weights, command, run_command):
    run_command("resnet-recipes report --published")
    message = run_command(f"resnet-recipes {command} --gallery report.html", 2).err
    assert "--gallery report.html already exists, and nothing is overwritten" in message


def test_eval_of_copied_weights_needs_only_images(run_eval, run_command):
    shutil.copy("mine/weights.safetensors", "weights.safetensors")
    from_file = run_eval("data=images workers=0", of="weights.safetensors")
    assert from_file["loss"] == pytest.approx(run_eval()["loss"], abs=1e-6)
    assert "data is missing" in run_command("resnet-recipes eval weights.safetensors", 3).err


@pytest.mark.parametrize("name", ["checkpoints/last.safetensors", "weights-best.safetensors"])
def test_eval_of_file_in_run_uses_its_images(name, folder_with_weights, run_eval):
    file = Path("mine", name)
    file.parent.mkdir(exist_ok=True)
    shutil.copy("mine/weights.safetensors", file)
    assert run_eval(of=str(file))["loss"] == pytest.approx(run_eval()["loss"], abs=1e-6)


def test_eval_of_unfinished_run_uses_newest_checkpoint(run_eval, run_command):
    shutil.move("mine", "runs/mine")
    result = run_eval()
    weights = Path("runs/mine/weights.safetensors")
    state = load(weights).model.state_dict()
    weights.unlink()
    recipe = to_tree(read(Path("runs/mine/config.yaml")))
    file = Path("runs/mine/checkpoints/step-00000008.pt")
    file.parent.mkdir()
    torch.save({"recipe": recipe, "classes": [*CLASSES], "methods": {}, "model": state}, file)
    for path in (file.with_name("step-00000004.pt"), file):  # the older one has no weights
        path.touch()
        path.with_suffix(".json").write_text(json.dumps({"bytes": path.stat().st_size}))
    assert "try:   resnet-recipes eval last\n" in run_command("resnet-recipes eval", 2).err
    assert run_eval(of="last")["loss"] == pytest.approx(result["loss"], abs=1e-6)
    assert f"newest checkpoint is {file}" in run_command("resnet-recipes eval last").err


def test_eval_of_file_in_foreign_checkpoints_needs_data(run_eval, run_command):
    Path("checkpoints").mkdir()
    shutil.copy("mine/weights.safetensors", "checkpoints")
    of = "checkpoints/weights.safetensors"
    assert "data is missing" in run_command(f"resnet-recipes eval {of}", 3).err
    assert count_right(run_eval("data=images/val", of=of)) == count_right(run_eval())


def test_eval_matches_class_folders_by_name(run_eval, run_command):
    whole = count_right(run_eval())
    some = CLASSES[3:9:2]
    for name in some:
        shutil.copytree(f"images/val/{name}", f"some/{name}")
    assert count_right(run_eval("data=some")) == {name: whole[name] for name in some}
    Path("some/strange").mkdir()
    assert "does not have: strange" in run_command("resnet-recipes eval mine data=some", 3).err


def test_eval_notes_training_images_in_a_large_folder(folder_with_weights, run_command):
    shutil.copytree("images/val", "photos")
    recipe = read(Path("mine/config.yaml"))
    recipe.data.root = str(Path("photos").absolute())
    recipe.data.fold = "1/3"
    Path("mine/config.yaml").write_text(freeze(recipe))
    facts = data.survey_images(recipe.data)
    Path("mine/data.json").write_text(facts.to_json())
    assert "note" not in run_command("resnet-recipes eval mine").err
    for folder in ("more", "others"):
        shutil.copytree("photos", folder)
        path = next(Path(folder).glob("*/*"))
        shutil.copy(path, path.with_name("added.jpg"))
    for path in sorted(Path("others").glob("*/*")):
        path.rename(path.with_name(f"other-{path.name}"))

    def is_noted(folder: str) -> bool:
        printed = run_command(f"resnet-recipes eval mine data={folder}")
        assert "top-1" in printed.out
        return f"{folder} may contain training images of mine\n" in printed.err

    assert is_noted("more")
    assert not is_noted("others")
    for text, is_unknown in {
        replace(facts, train_examples=1000).to_json(): False,
        replace(facts, train_digest="older").to_json(): True,
        "{": True,
    }.items():
        Path("mine/data.json").write_text(text)
        assert is_noted("others") == is_unknown


def test_eval_of_moved_images_names_their_folder(folder_with_weights, run_command):
    facts = data.survey_images(read(Path("mine/config.yaml")).data)
    Path("mine/data.json").write_text(facts.to_json())
    Path("images").rename("moved")
    message = run_command("resnet-recipes eval mine", 3).err
    assert "error: data=images does not exist\n      hint:  the current folder" in message
    assert "hint:  if the images were moved: data=PATH\n" in message


def test_eval_suggests_to_delete_damaged_facts(folder_with_weights, run_command):
    Path("mine/data.json").write_text("{")
    message = run_command("resnet-recipes eval mine", 3).err
    assert "\n      try:   rm mine/data.json\n" in message
    Path("mine/data.json").unlink()
    run_command("resnet-recipes eval mine")


def test_eval_sizes_scale_resize_and_print_a_table(folder_with_weights, run_command):
    head, *rows = run_command("resnet-recipes eval mine evaluation.sizes=[32,64]").out.splitlines()
    assert head.split()[:3] == ["PX", "RESIZE", "TOP-1"]
    assert [row.split()[:2] for row in rows] == [["32", "36"], ["64", "72"]]
    assert float(rows[1].split()[4]) == pytest.approx(
        evaluate_in_loop(folder_with_weights, 64, 72)[1], abs=1e-3
    )


def test_eval_uses_sizes_of_the_recipe(folder_with_weights, run_eval, run_command):
    recipe = read(folder_with_weights / "config.yaml")
    recipe.evaluation.sizes = [32, 64]
    (folder_with_weights / "config.yaml").write_text(freeze(recipe))
    assert [row["eval_size"] for row in run_eval()] == [32, 64]
    for flag in ("--png x.png", "--images x.csv", "--gallery x.html"):
        message = run_command(f"resnet-recipes eval mine {flag}", 2).err
        assert f"{flag} is for one test size, but evaluation.sizes is [32, 64]" in message
    assert "SIZE" in run_command("resnet-recipes eval mine --csv sizes.csv").out
    assert [row["eval_size"] for row in read_csv_rows("sizes.csv")] == ["32", "64"]
    assert "eval_size" in run_eval("evaluation.sizes=[]")


@pytest.mark.slow
def test_eval_on_two_ranks_equals_one(run_eval, forks, tmp_path):
    one = run_eval()
    arguments = "tests.commands.command_module eval mine gpus=2 --json"
    code, out, err = forks.run(tmp_path, *arguments.split()).wait()
    assert code == 0, err
    two = json.loads(out)
    assert re.fullmatch(r"CPU, \d+ cores?, 2 processes", two.pop("device"))
    assert re.fullmatch(r"CPU, \d+ cores?", one.pop("device"))
    assert two.pop("loss") == pytest.approx(one.pop("loss"), abs=1e-5)
    del one["images_per_second"], two["images_per_second"]
    assert two == one


def test_eval_names_unreadable_image_and_doctor_command(folder_with_weights, run_command):
    Path("images/val/pattern0/\x1b.jpg").write_bytes(b"none")
    Path("images/val/pattern0/b.jpg").write_bytes(b"none")
    message = run_command("resnet-recipes eval mine", 3).err
    assert "has unreadable images in val: 2, such as" in message
    assert re.search(r"\n      try:   resnet-recipes doctor data \S*\n", message)
    message = run_command("resnet-recipes eval mine data=images/val", 3).err
    assert "is not an image of a known format" in message


def test_eval_csv_equals_predictions_of_predict(run_eval, run_json):
    report = run_eval("--images images.csv --csv classes.csv")
    assert {row["class"] for row in read_csv_rows("classes.csv")} == set(CLASSES)
    rows = read_csv_rows("images.csv")
    assert [row["label"] for row in rows] == [Path(row["path"]).parent.name for row in rows]
    paths = " ".join(row["path"] for row in rows)
    predicted = run_json(f"resnet-recipes predict mine {paths}")
    five = [[item["class"] for item in one["classes"]] for one in predicted]
    among = sum(row["label"] in names for row, names in zip(rows, five, strict=True))
    assert report["top5_percent"] == pytest.approx(100 * among / 30)
    for row, one in zip(rows, predicted, strict=True):
        best, *others = one["classes"]
        assert best["probability"] >= others[0]["probability"] >= others[-1]["probability"] > 0
        assert row["prediction"] == best["class"]
        assert float(row["probability"]) == pytest.approx(best["probability"], abs=1e-5)
    assert sum(float(row["loss"]) for row in rows) / 30 == pytest.approx(report["loss"], abs=1e-5)


def test_eval_gallery_sorts_wrong_images_by_confidence(run_eval, monkeypatch):
    monkeypatch.setattr("resnet_recipes.commands.eval._IN_GALLERY", 4)
    run_eval("--images a.csv --gallery a.html")
    wrong = [row for row in read_csv_rows("a.csv") if row["prediction"] != row["label"]]
    wrong.sort(key=lambda row: -float(row["probability"]))
    page = Path("a.html").read_text()
    assert re.findall("<small>(.*)</small>", page) == [row["path"] for row in wrong[:4]]
    assert re.findall("label: (.*?)<", page) == [row["label"] for row in wrong[:4]]
    assert f"{len(wrong)} of 30 images were classified wrongly; the 4 most confident" in page
    first = Image.open(io.BytesIO(base64.b64decode(re.search('base64,([^"]+)', page)[1])))
    whole = Image.open(wrong[0]["path"]).resize((43, 36)).crop((5, 2, 37, 34))
    assert first.size == (64, 32)  # the image, and its copy with a heat map
    left, right = np.split(np.asarray(first, np.float32), 2, axis=1)
    assert 0.15 * left.mean() < right.mean() < left.mean()
    apart = np.abs(left - np.asarray(whole, np.float32)).mean()
    assert apart < 40  # two random images differ by 85


@pytest.mark.parametrize(("count", "title"), [(10, "10 classes"), (12, "10 of 12 classes")])
def test_class_table_counts_its_rows(count, title):
    percent = dict.fromkeys(("top1_percent", "precision_percent", "f1_percent"), 50.0)
    classes = [percent | {"images": 2, "class": f"c{number}"} for number in range(count)]
    _, heading, _, *rows = _format_tables(classes, [])
    assert heading == f"{title}, worst first"
    assert len(rows) == 10


@pytest.mark.parametrize(("count", "has_top5"), [(5, False), (6, True)])
def test_eval_prints_top5_only_above_five_classes(
    count, has_top5, tmp_path, run_command, monkeypatch
):
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    create_random_images(tmp_path / "images", CLASSES[:count])
    described = NetworkDescription("resnet18", count, CLASSES[:count], eval_resize=36, eval_size=32)
    write_weights(build_shallow_resnet18(count), tmp_path / "few.safetensors", described)
    line = "resnet-recipes eval few.safetensors data=images workers=0"
    out = run_command(line).out
    assert ("\ntop-5 " in out) == has_top5
    assert f"\n{count} classes, worst first\n" in out
    assert "\nIMAGES  CLASS" in out
    assert "PREDICTED AS\n" in out
    table = run_command(f"{line} evaluation.sizes=[32,64]").out
    assert ("TOP-5" in table.split()) == has_top5


def test_eval_of_beton_equals_eval_of_folder(run_eval, run_command):
    run_command("resnet-recipes convert images betons")
    report = run_eval("data=betons/val.beton")
    whole = run_eval()
    assert report["top1_percent"] == whole["top1_percent"]
    assert report["loss"] == pytest.approx(whole["loss"], abs=0.02)

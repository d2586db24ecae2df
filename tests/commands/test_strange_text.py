"""Untrusted names of classes, recipes and runs have no effect in terminals, pages or tables."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes import cli
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.run_folder import WEIGHTS
from resnet_recipes.training.run import Run
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_folder_with_weights, create_run_folder

HOSTILE = "\x1b[31m\u202e<script>alert(1)</script>|\r"
FORMULA = "=cmd|' !C calc'!A0"
HOSTILE_NAME = HOSTILE.replace("/", "!")  # as the name of a file or folder
LINK = "![x](http:evil)\n\n# owned"


@pytest.fixture
def hostile_run(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """A run whose classes have hostile names, next to its images."""
    names = [name.replace("/", "!") for name in (HOSTILE, FORMULA, LINK)]
    classes = sorted([*names, *map(str, range(7))])
    folder = create_folder_with_weights(make_run, tmp_path / "run", classes)
    network = load(folder / WEIGHTS)
    write_weights(network.model, folder / WEIGHTS, replace(network.about, recipe=HOSTILE))
    return folder


@pytest.fixture
def run_strange_text(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command, whose output must contain no control characters."""

    def run(*arguments: object, code: int = 0) -> str:
        ended = cli.main(list(map(str, arguments)))
        captured = capsys.readouterr()
        assert ended == code, captured
        lines = [*captured.out.split("\n"), *captured.err.split("\n")]
        assert all(line.isprintable() for line in lines)
        return captured.out + captured.err

    return run


def test_class_names_cannot_control_output(hostile_run, tmp_path, run_strange_text):
    assert "recipe \\x1b[31m" in run_strange_text("eval", hostile_run)
    written = {
        "--csv": "classes.csv",
        "--png": "x.png",
        "--images": "all.csv",
        "--gallery": "g.html",
    }
    flags = [word for flag, name in written.items() for word in (flag, tmp_path / name)]
    run_strange_text("eval", hostile_run, *flags)
    page = (tmp_path / "g.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert all(line.isprintable() for line in page.splitlines())
    images = hostile_run.parent / "images/val"
    run_strange_text("predict", hostile_run, images)
    run_strange_text("predict", hostile_run, images, "--csv", tmp_path / "images.csv")
    tables = [(tmp_path / name).open() for name in ("classes.csv", "images.csv", "all.csv")]
    rows = [row for table in tables for row in csv.reader(table)]
    cells = {cell for row in rows for cell in row}
    assert f"'{FORMULA}" in cells
    assert not any(cell[:1] in "=+-@" for cell in cells if cell)
    run_strange_text("export", hostile_run, "--to", "safetensors", "--out", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert r"\[x\](http:evil) # owned" in card
    assert "<script>" not in card
    assert all(line.isprintable() for line in card.splitlines())


def create_hostile_run(root: Path) -> Path:
    folder = create_run_folder(root, f"{FORMULA}{HOSTILE_NAME}")
    summary = json.loads((folder / "summary.json").read_text())
    text = f"'] ? {HOSTILE} \ud800"
    (folder / "summary.json").write_text(json.dumps(summary | {"recipe": text, "devices": text}))
    (folder / "overrides.txt").write_text(f"data.root={HOSTILE}\n")
    (folder / "command.txt").write_text(HOSTILE)
    (folder / "config.yaml").write_text("name: mild\n")  # its text is checked when it is read
    return folder.rename(folder.with_name(f"{folder.name}\udcff"))


def test_run_folder_text_cannot_control_output(tmp_path, run_strange_text):
    bad = create_hostile_run(tmp_path / "runs")
    good = create_run_folder(tmp_path / "runs", "good")
    table = tmp_path / "runs.csv"
    for arguments in ([], ["--sort", "top1"], ["--json"], ["--csv", table]):
        assert "good" in run_strange_text("runs", tmp_path / "runs", *arguments)
    text = table.read_text()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "'=" in text
    page = tmp_path / "page.html"
    run_strange_text("report", tmp_path / "runs", "--out", page)
    assert page.read_text().count("<script>alert") == 0
    assert "\u202e" not in page.read_text()
    assert cli.main(["compare", str(bad), str(good)]) == 2  # its name is not UTF-8
    bad = bad.rename(bad.with_name(bad.name[:-1]))
    run_strange_text("compare", bad, good)
    run_strange_text("watch", bad, "--once")


def test_software_and_failure_text_cannot_control_output(tmp_path, run_strange_text):
    config = {"run": {"name": "mine"}}  # its text is checked when it is read
    runs = [
        create_run_folder(tmp_path, f"{HOSTILE_NAME}{n}", seed=n, config=config) for n in (1, 2)
    ]
    for folder in runs:
        packages = {HOSTILE: folder.name, "torch": f"{HOSTILE}{folder.name}"}
        (folder / "env.json").write_text(json.dumps({"packages": packages}))
    assert "B: \\x1b" in run_strange_text("compare", *runs)
    failed = create_run_folder(tmp_path, f"{HOSTILE_NAME}3", state="failed", config=config)
    (failed / "exit.json").write_text(json.dumps({"code": 1, "message": HOSTILE}))
    assert "--resume" in run_strange_text("runs", tmp_path)
    assert "<script>alert" in run_strange_text("watch", failed, "--once")


def test_image_names_cannot_control_output(hostile_run, tmp_path, run_strange_text):
    images = create_random_images(tmp_path / "plain", ("a", "b"))
    (images / f"val/a/{HOSTILE_NAME}.jpg").write_bytes(b"\xff\xd8")
    assert "1 of 7 images cannot be read" in run_strange_text(
        "predict", hostile_run, images / "val"
    )
    assert "unreadable images" in run_strange_text("doctor", "data", images, code=3)
    assert "has unreadable images: 1 of 9 " in run_strange_text(
        "convert", images, tmp_path / "b", "--dry-run"
    )
    visible = HOSTILE_NAME.replace("\u202e", "")  # commands remove this character
    arguments = [images / "val", tmp_path / f"{visible}.beton", "workers=1", "on_bad_image=skip"]
    assert "\\x1b" in run_strange_text("convert", *arguments)
    assert "no file matches" in run_strange_text("predict", hostile_run, images / visible, code=3)


def test_printed_recipe_escapes_invisible_characters(tmp_path, run_strange_text):
    recipe = (Path(__file__).parents[2] / "recipes/demo.yaml").read_text()
    folder = tmp_path / HOSTILE_NAME
    folder.mkdir()
    (folder / "mine.yaml").write_text(recipe.replace("\n", "  # a\u202eb\n", 1))
    (folder / "wrong.yaml").write_text("name: [")
    assert "a\\u202eb" in run_strange_text("show", "mine", "--recipes", folder)
    assert "wrong.yaml" in run_strange_text("validate", "wrong", "--recipes", folder, code=2)


@pytest.mark.parametrize("out", [".", "..", "/", "a/" * 2500, "a" * 5000])
def test_unwritable_output_path_is_rejected(out, tmp_path):
    create_run_folder(tmp_path / "runs", "good")
    assert cli.main(["report", "runs", "--out", out]) in (2, 3)
    assert cli.main(["export", "runs/good", "--to", "safetensors", "--out", out]) in (2, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]

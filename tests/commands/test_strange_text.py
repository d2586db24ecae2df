"""Names of classes, recipes and runs from strangers act on no terminal, page or spreadsheet."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes import cli
from resnet_recipes.training.run import Run
from tests import trained_runs
from tests.run_folders import run_folder

NASTY = "\x1b[31m\u202e<script>alert(1)</script>|\r"
FORMULA = "=cmd|' !C calc'!A0"
LINK = "![x](http:evil)\n\n# owned"


@pytest.fixture
def run(make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose classes have hostile names, next to its images."""
    names = [name.replace("/", "!") for name in (NASTY, FORMULA, LINK)]
    monkeypatch.setattr(trained_runs, "CLASSES", tuple(sorted([*names, *map(str, range(7))])))
    return trained_runs.ended_run(make_run, tmp_path / "run")


def said(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command and return what it prints; nothing of it may act on a terminal."""
    assert cli.main(list(map(str, words))) == 0
    captured = capsys.readouterr()
    assert all(line.isprintable() for line in captured.out.split("\n") + captured.err.split("\n"))
    return captured.out


def test_names_of_classes_act_nowhere(run, tmp_path, capsys):
    assert "\\x1b[31m" in said(["eval", run], capsys)
    said(["eval", run, "--csv", tmp_path / "classes.csv", "--png", tmp_path / "x.png"], capsys)
    images = run.parent / "images" / "val"
    said(["predict", run, images], capsys)
    said(["predict", run, images, "--csv", tmp_path / "images.csv"], capsys)
    tables = [(tmp_path / name).open() for name in ("classes.csv", "images.csv")]
    rows = [row for table in tables for row in csv.reader(table)]
    cells = {cell for row in rows for cell in row}
    assert f"'{FORMULA}" in cells
    assert not any(cell[:1] in "=+-@" for cell in cells if cell)
    said(["export", run, "--to", "safetensors", "--out", tmp_path / "out"], capsys)
    card = (tmp_path / "out" / "README.md").read_text()
    assert r"\[x\](http:evil) # owned" in card
    assert "<script>" not in card
    assert all(line.isprintable() for line in card.splitlines())


def hostile_run(root: Path) -> Path:
    """Make a run all of whose text is hostile."""
    folder = run_folder(root, f"{FORMULA}{NASTY.replace('/', '!')}")
    summary = json.loads((folder / "summary.json").read_text())
    text = f"'] ? {NASTY} \ud800"
    (folder / "summary.json").write_text(json.dumps(summary | {"recipe": text, "devices": text}))
    (folder / "overrides.txt").write_text(f"data.root={NASTY}\n")
    (folder / "command.txt").write_text(NASTY)
    (folder / "config.yaml").write_text("name: mild\n")  # its text is checked when it is read
    return folder.rename(folder.with_name(f"{folder.name}\udcff"))


def test_the_text_of_a_run_folder_acts_nowhere(tmp_path, capsys):
    bad, good = hostile_run(tmp_path / "runs"), run_folder(tmp_path / "runs", "good")
    table = tmp_path / "runs.csv"
    for words in ([], ["--sort", "top1"], ["--json"], ["--csv", table]):
        assert "good" in said(["runs", tmp_path / "runs", *words], capsys)
    text = table.read_text()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "'=" in text
    page = tmp_path / "page.html"
    said(["report", tmp_path / "runs", "--out", page], capsys)
    assert page.read_text().count("<script>alert") == 0
    assert "\u202e" not in page.read_text()
    assert cli.main(["compare", str(bad), str(good)]) == 2  # its name is not UTF-8
    bad = bad.rename(bad.with_name(bad.name[:-1]))
    said(["compare", bad, good], capsys)
    said(["watch", bad, "--once"], capsys)


def test_a_recipe_shows_invisible_characters_of_its_comments(tmp_path, capsys):
    recipe = (Path(__file__).parents[2] / "recipes" / "demo.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(recipe.replace("\n", "  # a\u202eb\n", 1))
    assert "a\\u202eb" in said(["show", "mine", "--recipes", tmp_path], capsys)


@pytest.mark.parametrize("out", [".", "..", "/", "a/" * 2500, "a" * 5000])
def test_a_file_that_cannot_be_written_is_a_message(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "runs", "good")
    assert cli.main(["report", "runs", "--out", out]) == 3
    assert cli.main(["export", "runs/good", "--to", "safetensors", "--out", out]) in (2, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]

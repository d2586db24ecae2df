"""Small runs of the benchmarks that are started manually.

They work with the current package, and write the documented rows.
"""

import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import resnet_recipes as rr
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_run_folder

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _compute_with_one_thread() -> Iterator[None]:
    """Compute with one thread, because several would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def load_proof(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict]:
    """Return a function that loads a module of the proof as its commands do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "proof"))
    return lambda name: runpy.run_path(str(BENCHMARKS / "proof" / f"{name}.py"))


@pytest.fixture
def imagenette(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Return the names of the module as its command loads it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return runpy.run_path(str(BENCHMARKS / "imagenette.py"))


@pytest.fixture
def run_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs a benchmark with arguments, and returns its rows."""
    rows = tmp_path / "rows.json"

    def run(benchmark: str, *arguments: str) -> Any:
        path = BENCHMARKS / benchmark
        monkeypatch.setattr(sys, "argv", [str(path), *arguments, "--json", str(rows)])
        with suppress(SystemExit):
            runpy.run_path(str(path), run_name="__main__")
        return json.loads(rows.read_text())

    return run


def test_our_loop_and_handwritten_loop_take_same_steps(run_benchmark, monkeypatch):
    # the command also finds modules in its own folder
    monkeypatch.syspath_prepend(str(BENCHMARKS / "gpu_session"))
    path = BENCHMARKS / "gpu_session" / "loop_overhead.py"
    (row,) = run_benchmark("gpu_session/loop_overhead.py", "--quick")
    assert row["case"] == "resnet18 48 px, batch 8, cpu"
    assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
    loops = runpy.run_path(str(path))["make_loops"](48, 8, torch.device("cpu"))
    moved = []
    for model, steps in loops.values():
        before = copy_weights(model)
        steps(2)
        moved.append(copy_weights(model) - before)
    # 0.02 comes from rounding that flips a ReLU here and there
    assert (moved[0] - moved[1]).norm() < 0.06 * moved[0].norm()


def copy_weights(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_proof_table_of_runs_equals_its_csv(tmp_path, run_benchmark):
    for recipe, seed, top1 in (("base", 1, 50.0), ("base", 2, 52.0), ("mild", 1, 53.0)):
        create_run_folder(tmp_path / "runs", f"{recipe}-{seed}", recipe, top1, seed)
    table, picture = (tmp_path / name for name in ("runs.csv", "proof.png"))
    arguments = ["--csv", str(table), "--png", str(picture), "--against", "base@4:mild@4"]
    of_runs, of_table = (
        run_benchmark("proof", "--table", str(place), *arguments)
        for place in (tmp_path / "runs", table)
    )
    assert of_runs == of_table
    assert of_runs["cells"][0]["top1"] == {"1": 50.0, "2": 52.0}
    assert [one["points"] for one in of_runs["differences"]] == [[-3.0]]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_proof_rejects_epochs_that_are_not_numbers(load_proof, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["proof", "images", "--epochs", "4,"])
    with pytest.raises(SystemExit):
        load_proof("__main__")["parse_arguments"]()
    assert "--epochs: '4,' is not a list of epochs" in capsys.readouterr().err


def test_proof_commands_print_intervals_of_lab_notes(run_benchmark, monkeypatch):
    monkeypatch.chdir(BENCHMARKS.parent)
    notes = sorted((BENCHMARKS.parent / "docs" / "lab").glob("*.md"))
    page = "\n".join(note.read_text() for note in notes)
    rows = [line for line in page.splitlines() if line.startswith("| ") and " to " in line]
    printed = {tuple(re.findall(r"[-+]\d+\.\d|\b0\.0\b", line)) for line in rows}
    intervals = set()
    for command in re.findall(r"^python benchmarks/proof (--table .*)", page, re.M):
        written = run_benchmark("proof", *shlex.split(command))
        for one in written["differences"]:
            low = one["mean"] - one["half_width"]
            high = one["mean"] + one["half_width"]
            values = (*one["points"], one["mean"], low, high)
            intervals.add(tuple(f"{value:+.1f}".replace("+0.0", "0.0") for value in values))
    assert len(intervals) == 30
    assert intervals <= printed


def test_proof_differences_are_corrected_for_their_number(load_proof):
    table = load_proof("table")
    first, second, third = (
        table["Cell"]("", 8.0, dict(enumerate(top1)), pflops, 0.0)
        for top1, pflops in (((50, 50, 50), 2.0), ((54, 55, 56), 3.0), ((51, 50, 49), None))
    )
    differences = table["compute_differences"]([(second, first), (second, third), (third, first)])
    assert [one.result for one in differences] == ["more accurate", "not settled", "not settled"]
    assert (differences[0].points, differences[0].cost, differences[1].cost) == (
        (4, 5, 6),
        1.5,
        None,
    )
    # Student's t with 2 degrees of freedom at 1 - 0.05 / 6 is 7.6488
    assert differences[1].half_width == pytest.approx(7.6488 * stdev([3, 5, 7]) / 3**0.5, rel=1e-4)
    # with 2 degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2), where t = mean / standard error
    alone = []
    for points in ((4, 5, 6), (3, 5, 7)):
        t = 5 / (stdev(points) / 3**0.5)
        alone.append(1 - t / (2 + t * t) ** 0.5)
    expected = [3 * alone[0], max(3 * alone[0], 2 * alone[1]), 1.0]
    assert [one.p for one in differences] == pytest.approx(expected)


def test_proof_cells_are_named_by_differing_settings(tmp_path, load_proof):
    for place, changes in enumerate((["lr=1"], ["lr=2"], ["~methods.ema", "lr=1"])):
        settings = {"optimizer": {"lr": float(place)}}
        name = f"run{place}"
        folder = create_run_folder(tmp_path, name, "mild", 50.0, 1, 8.0, config=settings)
        arguments = ["data.root=images", "seed=1", *changes]
        (folder / "overrides.txt").write_text("".join(f"{argument}\n" for argument in arguments))
    names = {cell.name for cell in load_proof("table")["read_cells"]([tmp_path])}
    assert names == {"mild with lr=1", "mild with lr=2", "mild without ema with lr=1"}


def test_factor_effects_match_means_of_published_table(load_proof):
    factors = load_proof("factors")
    path = BENCHMARKS / "proof" / "select.csv"
    rows = factors["read_rows"](path)
    for effect in factors["compute_effects"](rows):
        name, *values = re.fullmatch(r"(\w+): (\S+) instead of (\S+)", effect.name).groups()
        second, first = (
            fmean(float(row["top1_percent"]) for row in rows if row[name] == value)
            for value in values
        )
        assert effect.points == pytest.approx(second - first)
        assert effect.error == pytest.approx(0.28, abs=0.005)  # docs/lab/gentle.md
        assert (effect.p < factors["SIGNIFICANT_P"]) == (name == "smallest_crop")


def test_loader_predictions_and_smaller_images_measure_every_case(tmp_path, run_benchmark):
    images = create_random_images(tmp_path / "images", train=6)
    arguments = str(images), "--sizes", "16", "--memory"
    measured_rows = run_benchmark("loader_predictions.py", *arguments, "48")
    assert [row["case"].removeprefix("images, 16 px, ") for row in measured_rows] == [
        "files",
        "memory at 48 px, later",
        "memory at 48 px, first epoch",
    ]
    assert all(row["predicted"] > 0 and row["measured"] > 0 for row in measured_rows)
    measured_rows = run_benchmark("smaller_images.py", *arguments, "30,60")
    # no image is larger than the last limit
    assert [row["changed_percent"] for row in measured_rows[1:]] == [100, 0]
    assert measured_rows[1]["low_db"] < measured_rows[1]["median_db"] < 30


def test_psnr_follows_its_formula():
    measured = runpy.run_path(str(BENCHMARKS / "smaller_images.py"))["compute_psnr"]
    expected = np.zeros((2, 4, 4, 3), np.uint8)
    pixels = expected.copy()
    pixels[1, 0, 0] = 255, 0, 0
    assert measured(pixels, expected).tolist() == [np.inf, pytest.approx(10 * np.log10(48))]


def test_imagenette_changes_sizes_and_durations_only(imagenette):
    training = imagenette["Training"](Path(), depth=18, dtype="bf16", epochs=5, seed=3, work=Path())
    for arm, resized in (("gentle", 133), ("nvidia_hparams", 146)):
        packaged = rr.compose(arm)
        recipe = rr.compose(arm, *imagenette["list_changes"](arm, training))
        data = replace(packaged.data, train_size=128, eval_size=128, eval_resize=resized)
        assert recipe.data == data
        assert recipe.optimizer == replace(packaged.optimizer, lr=0.064)
        ema = packaged.methods.ema
        if ema:
            ema = replace(ema, half_life="0.05dur", update_interval="0.01dur")
        assert recipe.methods == replace(packaged.methods, ema=ema)


def test_imagenette_counts_flops_of_both_passes(imagenette):
    convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    multiplications = 128 * 128 * 8 * 3 * 9
    # the weights have a gradient, and the images have none
    assert imagenette["count_flops"](convolution) == 2 * 2 * multiplications


def test_imagenette_skips_rows_of_same_case(tmp_path, imagenette, load_proof):
    path = tmp_path / "rows.csv"
    case = {"recipe": "gentle", "depth": "18", "epochs": "5", "seed": "1"}
    costs = {"top1_percent": "80", "pflops": "0.1", "mean_minutes": ""}
    assert not imagenette["is_finished"](path, case)
    for seed in ("1", "2"):
        imagenette["append_row"](path, case | {"seed": seed} | costs)
    assert imagenette["is_finished"](path, case)
    assert not imagenette["is_finished"](path, case | {"depth": "50"})
    (cell,) = load_proof("table")["read_cells"]([path])
    assert (cell.name, cell.top1, cell.minutes) == ("gentle", {1: 80.0, 2: 80.0}, None)

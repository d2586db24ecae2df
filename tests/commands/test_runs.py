"""The output of `resnet-recipes runs`."""

import json
import re
from pathlib import Path

import pytest

from resnet_recipes.commands.runs import rank_settings
from resnet_recipes.run_folder.runs import RunRecord
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows, read_csv_rows


@pytest.fixture
def three_runs(tmp_path: Path) -> Path:
    create_run_folder(tmp_path, "first", top1=70.0)
    create_run_folder(tmp_path, "better", top1=75.9, recipe="hot")
    create_run_folder(tmp_path, "wrong", state="failed", epochs=9.0)
    return tmp_path


def test_runs_prints_shared_settings_once_above_the_table(three_runs, run_command):
    (three_runs / "better/overrides.txt").write_text("seed=1\nrun.name=better\noptimizer.lr=3\n")
    lines = run_command(f"resnet-recipes runs {three_runs}").out.splitlines()
    assert lines[:2] == ["all runs: seed=1", ""]
    assert [line for line in lines if "lr=3" in line] == ["    lr=3"]
    assert sum("seed=1" in line for line in lines) == 1
    lines = run_command(f"resnet-recipes runs {three_runs} name=better").out.splitlines()
    assert lines[2] == "    seed=1  lr=3"


@pytest.mark.parametrize("command", ["runs", "compare first"])
def test_runs_and_compare_name_epoch_of_top1(command, run_command):
    for name, epoch in (("first", 4.5), ("second", 4.0)):
        path = create_run_folder(Path("runs"), name, state="stopped") / "metrics.jsonl"
        *_, step, _ = lines = path.read_text().splitlines()
        later = json.dumps(json.loads(step) | {"step": 45, "epoch": epoch})
        path.write_text("\n".join([*lines, later, ""]))
    out = run_command(f"resnet-recipes {command} {'second' * (command != 'runs')}").out
    assert out.count("70.00%") == 2
    assert out.count("70.00% at ep 4") == 1


@pytest.mark.parametrize(
    "command", ["compare", "diff mild", "eval", "predict", "report", "runs", "watch", "stop"]
)
@pytest.mark.parametrize("files", [(), ("config.yaml",)])
def test_other_folders_get_the_same_answer(command, files, run_command):
    Path("runs/other").mkdir(parents=True)
    Path("image.jpg").touch()
    for file in files:
        Path("runs/other", file).write_text("name: mild\n")
    images = " image.jpg" * (command == "predict")
    err = run_command(f"resnet-recipes {command} runs/other{images}", 3).err
    assert err.startswith("error: runs/other is not a run folder\n")


@pytest.mark.parametrize(
    ("arguments", "names"),
    parse_rows(
        """
 | better first wrong
--sort top1 | better first wrong
recipe=hot | better
state=failed | wrong
name=irs | first
state=running |
"""
    ),
)
def test_runs_are_sorted_and_filtered(arguments, names, three_runs, run_json):
    rows = run_json(f"resnet-recipes runs {three_runs} {three_runs}/first {arguments}")
    assert [row["name"] for row in rows] == names.split()


def test_runs_without_a_match_name_folder_and_filter(three_runs, run_command):
    out = run_command(f"resnet-recipes runs {three_runs} recipe=smal").out
    assert out == f"no runs in {three_runs} match recipe=smal\n"


def test_runs_csv_lists_name_state_and_cost(three_runs, run_command):
    run_command(f"resnet-recipes runs {three_runs} --csv={three_runs / 'runs.csv'} --price=36")
    rows = read_csv_rows(f"{three_runs}/runs.csv")
    assert [(row["name"], row["state"], float(row["cost"])) for row in rows] == [
        ("better", "finished", 3.0),
        ("first", "finished", 3.0),
        ("wrong", "failed", 3.0),
    ]


def test_runs_show_the_cost_at_their_own_price(run_command, run_json, tmp_path):
    """Each took 300 seconds. --price replaces the price of a run."""
    prices = {"finished": 12.0, "stopped": 24.0, "killed": None}
    for state, price in prices.items():
        create_run_folder(tmp_path, state, config={"launch": {"price": price}}, state=state)
    rows = run_json(f"resnet-recipes runs {tmp_path} --sort top1")
    assert {row["name"]: row["cost"] for row in rows} == {
        "finished": 1.0,
        "stopped": 2.0,
        "killed": None,
    }
    out = run_command(f"resnet-recipes runs {tmp_path}").out
    assert re.findall(r"(?:COST|\$[\d.]+|-)$", out, re.MULTILINE) == ["COST", "$1.00", "-", "$2.00"]
    rows = run_json(f"resnet-recipes runs {tmp_path} --price 36")
    assert [row["cost"] for row in rows] == [3.0] * 3
    assert "COST" not in run_command(f"resnet-recipes runs {tmp_path} state=killed").out


def test_runs_marks_best_evaluation_as_optimistic(three_runs, run_command, run_json):
    path = three_runs / "first/summary.json"
    best = {"best_top1_percent": 71.5, "best_epoch": 3.0}
    summary = json.loads(path.read_text()) | best
    path.write_text(json.dumps(summary))
    assert "best evaluation" not in run_command(f"resnet-recipes runs {three_runs}").out
    (row,) = run_json(f"resnet-recipes runs {three_runs} name=first")
    assert {key: row[key] for key in best} == best
    assert not row["has_best_weights"]
    path.write_text(json.dumps(summary | {"best_weights": "weights-best.safetensors"}))
    output = run_command(f"resnet-recipes runs {three_runs}").out
    assert output.count("best evaluation") == 1
    assert "    best evaluation: 71.50% at epoch 3 (optimistic); weights-best.safetensors" in output


def test_runs_in_empty_folder_suggests_the_demo(run_command, run_json):
    assert run_command("resnet-recipes runs").out == "no runs in ./runs\ntry:   resnet-train demo\n"
    assert run_command("resnet-recipes runs recipe=a").out == "no runs in ./runs match recipe=a\n"
    assert run_json("resnet-recipes runs") == []


def test_json_of_runs_has_epoch_of_last_evaluation(run_json, tmp_path):
    create_run_folder(tmp_path, "done")
    metrics = create_run_folder(tmp_path, "ended", state="stopped") / "metrics.jsonl"
    *_, step, _ = lines = metrics.read_text().splitlines()
    later = json.dumps(json.loads(step) | {"step": 45, "epoch": 4.5})
    metrics.write_text("\n".join([*lines, later, ""]))
    rows = run_json(f"resnet-recipes runs {tmp_path}")
    assert [(row["epochs_done"], row["top1_epoch"]) for row in rows] == [(4.0, 4.0), (4.5, 4.0)]


@pytest.mark.parametrize("name", ["summary.json", "config.yaml"])
def test_runs_prints_no_epochs_of_an_unreadable_run(name, run_command, tmp_path):
    create_run_folder(tmp_path, "damaged")
    tmp_path.joinpath("damaged", name).write_text("{")
    out = run_command(f"resnet-recipes runs {tmp_path}").out
    assert re.search(r"^damaged +unreadable +- +-", out, re.MULTILINE)


def test_ranking_of_settings_omits_runs_without_accuracy():
    runs = [
        RunRecord(folder=Path(name), state="finished", top1_percent=top1)
        for name, top1 in (("a", None), ("b", 70.0), ("c", 72.0), ("d", None))
    ]
    changes = {"a": ["lr=1"], "b": ["lr=1", "seed=2"], "c": ["lr=2"], "d": ["lr=3"]}
    *_, best, worst, _ = rank_settings(runs, changes)
    assert (best, worst) == ("lr=2         1      72.00%", "lr=1         1      70.00%")


def test_ranking_of_settings_compares_only_the_best_two():
    changes = {name: [f"lr={name[0]}", f"seed={name[1]}"] for name in ("11", "12", "21", "31")}
    runs = [
        RunRecord(folder=Path(name), state="finished", top1_percent=70.0 + int(name[0]))
        for name in changes
    ]
    assert list(rank_settings(runs, changes))[-1] == "try:   resnet-recipes compare 31 21"

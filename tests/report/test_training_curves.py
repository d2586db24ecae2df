"""The curves of runs, and the parts of their time."""

import json

import pytest

from resnet_recipes.report.training_curves import make_section
from resnet_recipes.run_folder.runs import read_run
from tests.shared.run_folders import create_run_folder


def read_values(folder, *records):
    """Add records to a run; return the rows of its plots by name."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    section = make_section({"mine": read_run(folder)}, "")
    return {figure.name: figure.spec["data"]["values"] for figure in section.figures}


@pytest.mark.parametrize("state", ["finished", "stopped"])
@pytest.mark.parametrize("startup", [30.0, 70.0])
def test_phases_add_up_to_wall_time(state, startup, tmp_path):
    begin = {"kind": "begin", "step": 40, "epoch": 4.0, "startup_seconds": startup}
    begin |= {"training_seconds": 240.0, "wall_seconds": 330.0}
    saved = {"kind": "saved", "step": 40, "epoch": 4.0, "seconds": 6.0, "wall_seconds": 336.0}
    folder = create_run_folder(tmp_path, "mine", state=state)
    rows = read_values(folder, begin, saved)["phases"]
    minutes = {row["phase"]: row["minutes"] for row in rows}
    assert sum(minutes.values()) == pytest.approx(336 / 60)
    # a startup of 71 s was recorded, of which 10 s are also in another part
    counted = min(startup + 1, 336 - 240 - 10 - 6)
    assert minutes == pytest.approx(
        {
            "training": 0.9 * 4,
            "data wait": 0.1 * 4,
            "evaluation": 10 / 60,
            "checkpoints": 6 / 60,
            "startup": counted / 60,
            "other": (336 - 240 - 10 - 6 - counted) / 60,
        }
    )


def test_accuracy_has_95_percent_interval_of_its_images(tmp_path):
    evaluation = {"kind": "evaluation", "step": 50, "epoch": 5.0, "raw_top1_percent": 50.0}
    evaluation |= {"examples": 100, "seconds": 1.0, "wall_seconds": 400.0}
    rows = read_values(create_run_folder(tmp_path, "mine"), evaluation)["course-top1_percent"]
    # Wilson's interval of 50 of 100, from tables
    assert [rows[-1]["low"], rows[-1]["high"]] == pytest.approx([40.38, 59.62], abs=0.005)


def test_long_curve_is_averaged_over_logged_steps(tmp_path, monkeypatch):
    """The run has 40 steps, so that nine points need means of five; the loss of step n is 3 / n."""
    monkeypatch.setattr("resnet_recipes.report.training_curves.MAX_POINTS", 9)
    rows = read_values(create_run_folder(tmp_path, "mine"))["course-loss"]
    rows = [row for row in rows if "loss" in row]
    assert [row["epoch"] for row in rows] == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert rows[0]["loss"] == pytest.approx((3 + 1.5 + 1 + 0.75 + 0.6) / 5)


def test_constant_quantities_have_no_plot_except_accuracy(tmp_path):
    evaluation = {"kind": "evaluation", "step": 50, "epoch": 5.0, "ema_top1_percent": 70.0}
    evaluation |= {"examples": 0, "seconds": 1.0, "wall_seconds": 400.0}
    plots = read_values(create_run_folder(tmp_path, "mine", top1=70.0), evaluation)
    assert {*plots} == {"course-top1_percent", "course-loss", "course-pixels", "phases"}

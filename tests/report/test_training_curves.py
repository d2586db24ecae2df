"""The curves of runs, and the parts of their time."""

import json

import pytest

from resnet_recipes.report.training_curves import make_section
from resnet_recipes.run_folder.runs import read_run
from tests.run_folders import make_run_folder


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
    folder = make_run_folder(tmp_path, "mine", state=state)
    rows = read_values(folder, begin, saved)["phases"]
    minutes = {row["phase"]: row["minutes"] for row in rows}
    assert sum(minutes.values()) == pytest.approx(336 / 60)
    # a start-up of 71 s was recorded, of which 10 s are also in another part
    counted = min(startup + 1, 336 - 240 - 10 - 6)
    assert minutes == pytest.approx(
        {
            "training": 0.9 * 4,
            "waiting for data": 0.1 * 4,
            "evaluation": 10 / 60,
            "checkpoints": 6 / 60,
            "start-up": counted / 60,
            "other": (336 - 240 - 10 - 6 - counted) / 60,
        }
    )

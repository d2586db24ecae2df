"""MLPerf's log, by mlperf-logging's own compliance checker."""

import json
from dataclasses import replace

import pytest

from resnet_recipes.report import mlperf
from tests.compliance import complies

SAMPLES = {"train_samples": 1000, "eval_samples": 500}
VALUES = {"seed": 1, "global_batch_size": 100, "opt_name": "lars", **SAMPLES}


@pytest.fixture
def events(recorder, facts, driver) -> list[dict]:
    """The events of four epochs, interrupted after the third, that reach the target at the end."""
    recorder.begin()
    driver.run(0, 30)
    recorder.begin(30, driver.seconds)
    driver.run(30, 40)
    recorder.write_mlperf(VALUES, has_reached_target=True)
    lines = (facts.folder / mlperf.RESULT).read_text().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def test_compliance_checker_accepts_an_open_division_run(events, facts):
    assert complies(facts.folder / mlperf.RESULT)


def test_compliance_checker_rejects_run_without_evaluation(events, facts):
    path = facts.folder / mlperf.RESULT
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "eval_accuracy" not in line))
    assert not complies(path)


def test_epochs_start_at_1_and_evaluations_end_blocks(events):
    found = [
        f"{event['key']} {number}"
        for event in events
        for key, number in event["metadata"].items()
        if key in ("epoch_num", "first_epoch_num")
    ]
    kinds = ["block_start", "epoch_start", "epoch_stop", "eval_accuracy", "block_stop"]
    assert [one for one in found if one.split()[0] in kinds] == [
        f"{kind} {epoch}" for epoch in (1, 2, 3, 4) for kind in kinds
    ]


def test_missed_target_is_an_aborted_run(events, recorder, facts):
    shares = [event["value"] for event in events if event["key"] == "eval_accuracy"]
    assert shares == [0.59, 0.69, 0.79, 0.89]
    assert (events[-1]["key"], events[-1]["metadata"]) == ("run_stop", {"status": "success"})
    recorder.write_mlperf(VALUES, has_reached_target=False)
    assert (
        '"run_stop", "value": null, "metadata": {"status": "aborted"}'
        in (facts.folder / mlperf.RESULT).read_text()
    )


def test_blocks_hold_epochs_until_the_next_evaluation(facts):
    begun = {"kind": "begin", "time": 100.0, "startup_seconds": 5.0}
    evaluated = {"kind": "evaluation", "raw_top1_percent": 76.0, "seconds": 2.0, "raw_seconds": 0.5}
    records = [begun | {"step": 0, "wall_seconds": 5.0}]
    for epoch in (1, 2, 3, 4):
        at = {"step": 10 * epoch, "wall_seconds": 5.0 + 10 * epoch}
        records += [{"kind": "step", **at}, {"kind": "epoch", **at}]
        if epoch == 3:
            records.append(evaluated | {"step": 30, "wall_seconds": 37.0})
    text = mlperf.format_result(
        records, replace(facts, total_steps=40), VALUES, has_reached_target=True
    )
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    blocks = [event["metadata"].values() for event in events if event["key"] == "block_start"]
    assert [*map(list, blocks)] == [[1, 3], [4, 1]]
    times = {event["key"]: event["time_ms"] for event in events}
    stages = ("init_start", "run_start", "eval_start", "eval_stop")
    assert [times[stage] for stage in stages] == [95e3, 100e3, 130e3, 131.5e3]

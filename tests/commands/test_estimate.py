"""The output of `resnet-recipes estimate`; tests/jobs/ranks/test_ranks.py tests the ranks."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from resnet_recipes.jobs.machine import run_time
from resnet_recipes.jobs.ranks import launcher
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.lock import LockedFolder

ARGUMENTS = (
    "recipe=mild data.backend=synthetic model.name=resnet18 bs=16 max_duration=60ep ssr=1 "
    "schedule.warmup=1ba launch.device=cpu"
)

FIXED_SIZE = "~methods.progressive_resizing"


@pytest.fixture(autouse=True)
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    speeds = Speeds(
        {88: (0.01,) * 4, 176: (0.04,) * 4},
        20.0,
        {88: 50.0},
        16,
        total_images_per_second=45.0,
        start_seconds=5.0,
    )
    monkeypatch.setattr(run_time, "measure_on_ranks", lambda *_: calls.append(0) or speeds)
    return calls


@pytest.fixture
def use_speeds(monkeypatch: pytest.MonkeyPatch) -> Callable[[Speeds], None]:
    """Return a function that sets the measured speeds."""
    return lambda speeds: monkeypatch.setattr(run_time, "measure_on_ranks", lambda *_: speeds)


@pytest.fixture
def received_jobs(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The jobs that the ranks received. Each epoch takes ten seconds, the first thirty."""
    jobs: list[dict] = []

    def train(locked: LockedFolder, *_: object) -> Ending:
        folder = locked.path
        sample = json.loads((folder / "task.json").read_text())
        jobs.append(sample | {"recipe": yaml.safe_load((folder / "config.yaml").read_text())})
        seconds, records = 0.0, []
        keys = "epoch wall_seconds loss lr images_per_second data_wait_share"
        always = dict.fromkeys(keys.split(), 0.5)
        for first, end in sample["spans"]:
            seconds += 10.0 if first else 30.0
            step = {"kind": "step", "step": end, "pixels": 88, "training_seconds": seconds}
            evaluation = {"kind": "evaluation", "step": end, "examples": 50, "seconds": 2.0}
            records += [step, evaluation]
        text = "".join(json.dumps(record | always) + "\n" for record in records)
        (folder / "metrics.jsonl").write_text(text)
        return Ending(0)

    monkeypatch.setattr(launcher, "start", train)
    return jobs


def test_estimate_is_measured_once_and_reused(measurements, run_command):
    outputs = [
        run_command(f"resnet-recipes estimate {ARGUMENTS} --price 36/h --csv phases{n}.csv").out
        for n in range(2)
    ]
    assert len(measurements) == 1
    assert "Measured on this machine" in outputs[0]
    assert "at $36.00 per hour" in outputs[1]
    run_command(f"resnet-recipes estimate {ARGUMENTS} data.mean=[1,2,3]")
    run_command(f"resnet-recipes estimate {ARGUMENTS} --again")
    run_command(f"resnet-recipes estimate {ARGUMENTS} model.name=resnet34")
    assert len(measurements) == 3


def test_estimate_json_has_phases_and_cost(run_json):
    values = run_json(f"resnet-recipes estimate {ARGUMENTS} --price 36")
    assert sum(phase["minutes"] for phase in values["phases"]) == pytest.approx(
        values["training_minutes"]
    )
    minutes = values["training_minutes"] + values["evaluation_minutes"] + 5 / 60  # with startup
    assert values["cost"] == pytest.approx(0.6 * minutes)
    assert values["bounds_minutes"][0] <= values["training_minutes"] <= values["bounds_minutes"][1]
    assert values["speeds"]["loader_images_per_second"] == {"88": 50.0}


def test_estimate_names_bottleneck_and_setting(run_command):
    out = run_command(f"resnet-recipes estimate {ARGUMENTS}").out
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    heads = ["PX", "EPOCHS", "IMAGES/S", "STEP ALONE", "LOADER ALONE", "TIME", "BOTTLENECK"]
    assert lines[0] == heads
    assert (lines[1][0], *lines[1][3:5], lines[1][-1]) == ("88", "100", "50", "loader")
    assert "At 88 px, the loader is the bottleneck\n" in out
    assert "use:   methods.progressive_resizing.at=loader" in out


RESIZING_ADVICE = "use:   'methods.progressive_resizing={}'"


@pytest.mark.parametrize(
    ("arguments", "is_suggested"),
    [("", True), ("max_duration=4ep", False), ("model.weights=torchvision", False)],
)
def test_estimate_suggests_resizing_unless_plan_warns(
    arguments, is_suggested, use_speeds, run_command
):
    """Four epochs end below the full size, and pretrained weights start at it."""
    speeds = Speeds({176: (0.04,) * 4}, 1000.0, {176: 1000.0}, 16)
    use_speeds(speeds)
    out = run_command(f"resnet-recipes estimate {ARGUMENTS} {FIXED_SIZE} {arguments}").out
    assert ("At 176 px, the step is the bottleneck" in out) == is_suggested
    assert (RESIZING_ADVICE in out) == is_suggested
    assert "hint:  " not in out


def test_estimate_prints_the_sum_of_printed_times(use_speeds, run_command):
    """The run takes 310.6 seconds: 307.2 to train, and 3.4 to start."""
    speeds = Speeds({176: (0.04,) * 4}, 1e6, {176: 1e6}, 16, start_seconds=3.4)
    use_speeds(speeds)
    out = run_command(f"resnet-recipes estimate {ARGUMENTS} {FIXED_SIZE}").out
    times = re.findall(r"^(?:training|evaluations|startup|wall time) +([0-9:]+)", out, re.MULTILINE)
    assert times == ["5:07", "0:00", "0:03", "5:10"]


def test_estimate_and_plan_advise_fewer_evaluations(use_speeds, run_command):
    """An epoch trains for 5 seconds; its evaluation takes 10."""
    speeds = Speeds({176: (0.04,) * 4}, 5.0, {176: 1000.0}, 16)
    use_speeds(speeds)
    arguments = f"{ARGUMENTS} {FIXED_SIZE} evaluation.interval=1ep"
    out = run_command(f"resnet-recipes estimate {arguments}").out
    assert (
        "\nEvaluations take at least as long as training\n      use:   evaluation.interval=2ep\n"
        in out
    )
    assert "bottleneck" not in out
    plan = run_command(f"resnet-recipes plan {arguments}").out
    assert "use        evaluation.interval=2ep" in plan
    assert "note       evaluations take at least as long as training\n" in plan


@pytest.mark.parametrize(("both", "is_noted"), [(24.0, False), (26.0, False), (50.0, True)])
def test_estimate_notes_parts_that_disagree(both, is_noted, use_speeds, run_command):
    """Steps alone reach 25 images/s: 5:07 for 60 epochs of 128 images."""
    speeds = Speeds({176: (0.04,) * 4}, 1e6, {176: 1e6}, 16, total_images_per_second=both)
    use_speeds(speeds)
    out = run_command(f"resnet-recipes estimate {ARGUMENTS} {FIXED_SIZE}").out
    assert ("The parts disagree" in out) == is_noted
    if is_noted:
        text = " ".join(out.split())
        assert "25 images/s alone, but 50 with the loader, so the machine was busy" in text
        assert "\n      use:   --again\n      hint:  measure while nothing else is running\n" in out
        assert "training        5:07   between 2:34 and 5:07\n" in out, "at 50 images/s: 2:34"
    plan = run_command(f"resnet-recipes plan {ARGUMENTS} {FIXED_SIZE}").out
    assert ("while it was busy" in " ".join(plan.split())) == is_noted


def test_estimate_names_dominant_all_reduce(use_speeds, run_command):
    """A step of 2 x 16 images at 88 px takes 320 ms."""
    speeds = Speeds(
        {88: (0.01,) * 4}, 20.0, images_per_device=16, devices=2, all_reduce_seconds=0.3
    )
    use_speeds(speeds)
    out = run_command(f"resnet-recipes estimate {ARGUMENTS} gpus=2").out
    assert "the all-reduce is the bottleneck" in out
    assert "precision.compress_gradients=true" in out


def test_plan_has_time_and_cost_once_measured(run_command):
    arguments = f"{ARGUMENTS} launch.price=36"
    assert "measured on" not in run_command(f"resnet-recipes plan {arguments}").out
    run_command(f"resnet-recipes estimate {arguments}")
    out = " ".join(run_command(f"resnet-recipes plan {arguments}").out.split())
    assert "with evaluations, checkpoints and startup, training" in out
    assert "measured on this machine" in out
    assert "at $36.00 per hour" in out


@pytest.mark.parametrize(
    ("arguments", "epochs"),
    [
        (FIXED_SIZE, [0, 1, 2, 3]),
        ("", [0, 1, 25, 59]),  # 88, 88, 92 and 176 px
        (
            f"{FIXED_SIZE} max_duration=20ba",
            [0, 1],
        ),  # an epoch has 8 steps: the third is incomplete
    ],
)
def test_estimate_sample_trains_epochs_of_full_schedule(arguments, epochs, received_jobs, run_json):
    values = run_json(f"resnet-recipes estimate {ARGUMENTS} {arguments} --sample 4")
    assert [row["epoch"] - 1 for row in values["trained"]] == epochs
    assert received_jobs[0]["spans"] == [[epoch * 8, (epoch + 1) * 8] for epoch in epochs]
    assert values["training_minutes"] == pytest.approx(values["epochs"] / 6)
    assert values["evaluation_minutes"] == pytest.approx(2 * (-(-values["epochs"] // 1) + 1) / 60)
    assert received_jobs[0]["recipe"]["max_duration"] == ("20ba" if "20ba" in arguments else "60ep")
    assert not Path(received_jobs[0]["recipe"]["run"]["root"]).exists()


def test_estimate_sample_reports_epochs_and_omitted_parts(received_jobs, run_command):
    out = run_command(f"resnet-recipes estimate {ARGUMENTS} --sample 4").out
    assert "startup            -   and checkpoints\nwall time      12:02\n" in out
    assert "The first epoch counted like the second, from 4 of 60 epochs" in out
    assert not re.search("BOTTLENECK|ALONE", out), "the parts of a step were not timed"
    message = run_command(
        f"resnet-recipes estimate {ARGUMENTS} max_duration=15ba --sample 9", 2
    ).err
    assert "must be at least two epochs" in message

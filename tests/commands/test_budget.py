"""`budget=` for users, on a simulated machine that takes ten milliseconds per image."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes import api
from resnet_recipes.jobs.machine import run_time
from resnet_recipes.planning.estimate import MAX_DRIFT, Speeds
from resnet_recipes.recipe.frozen_recipe import read
from tests.shared.plans import TINY
from tests.shared.tables import parse_values

ARGUMENTS = "mild '~methods.progressive_resizing' " + TINY.replace("max_duration=4ba ssr=1 ", "")

#: An epoch has 128 images. Each evaluation, including the second at the end of a run, has 50.
EPOCH_SECONDS = 1.28 + 0.5
START_SECONDS = 6.0
SAVE_SECONDS = 1.0
END_SECONDS = 0.5 + SAVE_SECONDS
SPEEDS = Speeds(
    {32: (0.01,) * 4},
    evaluation_images_per_second=100.0,
    start_seconds=START_SECONDS,
    save_seconds=SAVE_SECONDS,
)
#: Epochs in two minutes.
FITTING_EPOCHS = int(
    (120 / MAX_DRIFT - START_SECONDS - END_SECONDS) / (EPOCH_SECONDS + SAVE_SECONDS)
)


@pytest.fixture(autouse=True)
def measurements(monkeypatch):
    """Replace measurements; return a list with an item for each measurement."""
    calls = []
    monkeypatch.setattr(run_time, "measure_on_ranks", lambda *_: calls.append(0) or SPEEDS)
    return calls


def read_duration(run):
    return read(Path(f"runs/{run}/config.yaml")).max_duration


def test_budget_becomes_the_largest_fitting_number_of_epochs(
    run_folders, measurements, run_command
):
    for name, budget, price in (("a", "2m", "1"), ("b", "$20", "600")):  # two minutes each
        arguments = f"run={name} budget='{budget}' launch.price={price}"
        message = run_command(f"resnet-train {ARGUMENTS} {arguments}", 75).err
        assert read_duration(name) == f"{FITTING_EPOCHS}ep"
        assert read(Path(f"runs/{name}/config.yaml")).launch.budget == ""
        assert f"budget={budget} sets {FITTING_EPOCHS} epochs\n" in message
    assert len(measurements) == 1
    assert "launch.budget=2m" in Path("runs/a/overrides.txt").read_text()


def test_budget_reserves_time_for_evaluations_and_checkpoints(run_command, run_folders):
    every = "evaluation.interval=1dur checkpoint.interval=1dur"
    run_command(f"resnet-train {ARGUMENTS} run=a budget=2m {every}", 75)
    training_seconds = 120 / MAX_DRIFT - START_SECONDS - 2 * END_SECONDS
    assert read_duration("a") == f"{int((training_seconds + 1e-9) / 1.28)}ep"


@pytest.mark.parametrize(("budget", "is_long"), [("2m", False), ("20m", True)])
def test_long_budget_names_the_duration_of_the_recipe(run_command, run_folders, budget, is_long):
    message = run_command(f"resnet-train {ARGUMENTS} run=a budget={budget}", 75).err
    assert ("\n    without budget=, mild trains 36 epochs\n" in message) == is_long


@pytest.fixture
def slow_evaluations(monkeypatch):
    """Evaluations of five seconds; an epoch trains for 1.28 seconds."""
    slow = replace(SPEEDS, evaluation_images_per_second=10.0)
    monkeypatch.setattr(run_time, "measure_on_ranks", lambda *_: slow)


@pytest.mark.parametrize(
    ("budget", "arguments", "interval"),
    parse_values("""
2m | '' | 1dur
21s | '' | 1dur
2m | evaluation.interval=4ep | 4ep
2m | stop_at_top1=90 | 1ep
2m | checkpoint.best=top1 | 1ep
"""),
)
def test_budget_with_slow_evaluations_evaluates_once_by_default(
    slow_evaluations, run_command, run_folders, budget, arguments, interval
):
    """Two evaluations, of the weights and of their average, end every run."""
    line = f"resnet-train {ARGUMENTS} run=a budget={budget} {arguments} --resume auto"
    message = run_command(line, 75).err
    recipe = read(Path("runs/a/config.yaml"))
    assert recipe.evaluation.interval == interval
    assert ("evaluation.interval=1dur to save time" in message) == (interval == "1dur")
    assert "evaluation.interval" not in run_command(line, 75).err
    assert read(Path("runs/a/config.yaml")).evaluation.interval == interval
    if interval == "1dur":
        seconds = float(budget.rstrip("ms")) * (60 if budget[-1] == "m" else 1)
        epochs = (seconds / MAX_DRIFT - START_SECONDS - SAVE_SECONDS - 10) / (1.28 + SAVE_SECONDS)
        assert float(recipe.max_duration[:-2]) == pytest.approx(epochs, abs=1)
    plan = run_command(f"resnet-train {ARGUMENTS} budget={budget} {arguments} --dry-run").out
    assert ("at the end" in plan) == (interval == "1dur")


def test_budget_below_warm_up_is_rejected_with_minimum(run_folders, run_command):
    message = run_command(f"resnet-train {ARGUMENTS} budget=40s schedule.warmup=8ep", 2).err
    assert "the shortest sensible run is epochs=16, which takes up to 0:48" in message
    assert "budget=1m" in message
    assert not run_folders
    message = run_command(f"resnet-train {ARGUMENTS} budget=2m schedule.warmup=40ep", 2).err
    assert "epochs=80, which takes up to" in message  # mild has 36 epochs
    run_command(f"resnet-train {ARGUMENTS} run=a budget=2m schedule.warmup=8ep", 75)


def test_budget_below_shortest_run_suggests_finetuning(run_command, monkeypatch):
    slow = replace(SPEEDS, seconds_per_image={32: (1000.0,) * 4})
    monkeypatch.setattr(run_time, "measure_on_ranks", lambda *_: slow)
    message = run_command(f"resnet-train {ARGUMENTS} budget=2h schedule.warmup=8ep", 2).err
    assert "the shortest sensible run is epochs=16, which takes up to 4 weeks" in message
    assert "hint:  the recipe finetune trains only the classifier; a GPU is much faster" in message


def test_resumed_budget_run_keeps_its_duration(run_folders, measurements, run_command):
    line = f"resnet-train {ARGUMENTS} run=a budget=2m --resume auto"
    run_command(line, 75)
    before = Path("runs/a/config.yaml").read_text()
    run_command(f"{line} launch.price=3", 75)  # a requeued job on a slower machine
    assert len(run_folders) == 2
    assert len(measurements) == 1
    assert read_duration("a") in before
    message = run_command("resnet-train --resume runs/a budget=3m", 2).err
    assert "needs a new run: this run keeps its duration" in message


def test_resumed_budget_run_uses_an_interval_typed_later(run_folders, run_command):
    line = f"resnet-train {ARGUMENTS} run=a budget=2m --resume auto"
    run_command(line, 75)
    run_command(f"{line} evaluation.interval=4ep", 75)
    assert read(Path("runs/a/config.yaml")).evaluation.interval == "4ep"


def test_budget_dry_run_prints_epochs_without_measuring(
    run_folders, measurements, run_command, run_json
):
    guessed = run_json(f"resnet-train {ARGUMENTS} budget=2h --dry-run")["epochs"]
    assert not measurements
    run_command(f"resnet-train {ARGUMENTS} run=a budget=2m", 75)
    epochs = run_json(f"resnet-train {ARGUMENTS} budget=2m --dry-run")["epochs"]
    assert f"{epochs:g}ep" == read_duration("a")
    assert guessed != epochs


def test_plan_names_the_parts_of_a_measured_time(run_command):
    run_command(f"resnet-recipes estimate {ARGUMENTS}")
    out = " ".join(run_command(f"resnet-recipes plan {ARGUMENTS}").out.split())
    assert "with evaluations, checkpoints and startup, training" in out


def test_budget_under_torchrun_uses_speeds_of_estimate(run_command, monkeypatch):
    two = f"{ARGUMENTS} gpus=2 batch.bn_size=8"
    run_command(f"resnet-recipes estimate {two}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # set by torchrun
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    run_command(f"resnet-train {two} budget=2m --dry-run")


def test_budget_sweep_runs_keep_their_names(measurements, run_command):
    def list_names():
        lines = run_command(
            f"resnet-train -m recipe={ARGUMENTS} budget=2m,4m --dry-run"
        ).out.splitlines()
        return [line.split()[0] for line in lines if line.startswith("  mild-budget")]

    before = list_names()
    run_command(f"resnet-recipes estimate {ARGUMENTS}")
    assert before == list_names()
    assert len(set(before)) == 2


def test_api_plans_a_budget_and_estimates_a_run(measurements, tmp_path):
    arguments = shlex.split(ARGUMENTS)[1:]
    recipe = api.compose("mild", *arguments, budget="2m", run="mine", **{"run.root": tmp_path})
    folder = api.prepare(recipe)
    assert read(folder / "config.yaml").max_duration == f"{FITTING_EPOCHS}ep"
    whole = api.estimate(api.compose("mild", *arguments, epochs=FITTING_EPOCHS))
    expected = START_SECONDS + END_SECONDS + FITTING_EPOCHS * (EPOCH_SECONDS + SAVE_SECONDS)
    assert 60 * whole.max_minutes == pytest.approx(MAX_DRIFT * expected, abs=0.1)
    assert len(measurements) == 1

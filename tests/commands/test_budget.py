"""`budget=` as a user sees it; what machines do is made up: each image takes ten milliseconds."""

import json
from pathlib import Path

import pytest

from resnet_recipes import api, cli
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.estimating.estimate import Speeds
from resnet_recipes.jobs import measure
from resnet_recipes.recipe.frozen import read
from resnet_recipes.run_folder.ending import Ending
from tests.commands.test_train import SMALL

WORDS = ["recipe=mild", "~methods.progressive_resizing"]
WORDS += [word for word in SMALL if not word.startswith(("max_duration=", "ssr="))]

#: An epoch has 128 images, and every evaluation 50, also the second at the end of a run.
EPOCH, START, SAVE = 1.28 + 0.5, 6.0, 1.0
LAST = 0.5 + SAVE


@pytest.fixture(autouse=True)
def measured(monkeypatch, tmp_path):
    """The speeds that each measurement finds, and how often one was made."""
    calls = []
    found = Speeds({32: (0.01,) * 4}, evaluation=100.0, start=START, save=SAVE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        measure, "speeds", lambda *_: calls.append(0) or (Ending(ExitCode.DONE), found)
    )
    return calls


def length(run):
    return read(Path(f"runs/{run}/config.yaml")).max_duration


def test_a_run_is_as_long_as_fits_and_knows_epochs_only(started, measured, capsys):
    for name, budget, price in (("a", "2m", "1"), ("b", "$20", "600")):  # both are two minutes
        words = [f"run={name}", f"budget={budget}", f"launch.price={price}"]
        assert cli.train([*WORDS, *words]) == 75
        fits = int((120 - START - LAST) / (EPOCH + SAVE))
        assert length(name) == f"{fits}ep"
        assert read(Path(f"runs/{name}/config.yaml")).launch.budget == ""
        assert f"budget={budget} is {fits} epochs: " in capsys.readouterr().err
    assert len(measured) == 1
    assert "launch.budget=2m" in Path("runs/a/overrides.txt").read_text()


def test_what_evaluations_and_checkpoints_take_is_left_for_them(started):
    cli.train(
        [*WORDS, "run=a", "budget=2m", "evaluation.interval=1dur", "checkpoint.interval=1dur"]
    )
    assert length("a") == f"{int((120 - START - 2 * LAST + 1e-9) / 1.28)}ep"


def test_too_little_for_a_warm_up_is_refused_with_the_least(started, capsys):
    assert cli.train([*WORDS, "budget=50s", "schedule.warmup=8ep"]) == 2
    assert "epochs=16, the least that makes sense with a warm-up of 8ep, may take 0:52" in (
        said := capsys.readouterr().err
    )
    assert "budget=1m" in said
    assert not started
    assert cli.train([*WORDS, "run=a", "budget=2m", "schedule.warmup=8ep"]) == 75


@pytest.mark.parametrize("word", ["epochs=3", "ssr=2", "max_duration=3ep"])
def test_one_word_sets_the_length(word, started, capsys):
    assert cli.train([*WORDS, "budget=2m", word]) == 2
    assert f"budget: sets the length, and so does {word}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("budget", "said"),
    [("2", "must be a time, as in 2h"), ("$9", "set launch.price")],
)
def test_a_budget_that_is_none_is_refused(budget, said, started, capsys):
    assert cli.train([*WORDS, f"budget={budget}"]) == 2
    assert said in capsys.readouterr().err


def test_a_resumed_run_keeps_its_length(started, measured, capsys):
    words = [*WORDS, "run=a", "budget=2m", "--resume", "auto"]
    assert cli.train(words) == 75
    before = Path("runs/a/config.yaml").read_text()
    assert cli.train([*words, "launch.price=3"]) == 75  # a requeued job, on a slower machine
    assert len(started) == 2
    assert len(measured) == 1
    assert length("a") in before
    assert cli.train(["--resume", "runs/a", "budget=3m"]) == 2
    assert "is for a new run: this one keeps its length" in capsys.readouterr().err


def test_a_dry_run_measures_nothing_and_shows_the_length(started, measured, capsys):
    assert cli.train([*WORDS, "budget=2h", "--dry-run", "--json"]) == 0
    guessed = json.loads(capsys.readouterr().out)["epochs"]
    assert not measured
    cli.train([*WORDS, "run=a", "budget=2m"])
    assert cli.train([*WORDS, "budget=2m", "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["epochs"]
    assert f"{shown:g}ep" == length("a")
    assert guessed != shown


def test_the_runs_of_a_sweep_over_budgets_keep_their_names(measured, capsys):
    def names():
        assert cli.train(["-m", *WORDS, "budget=2m,4m", "--dry-run"]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split()[0] for line in lines if line.startswith("  mild-budget")]

    before = names()
    assert cli.main(["estimate", *WORDS]) == 0
    capsys.readouterr()
    assert before == names()
    assert len(set(before)) == 2


def test_the_job_of_a_budget_has_time_for_it(capsys):
    assert cli.main(["slurm", *WORDS, "budget=90m"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --time=1:45:00\n" in out
    assert "budget=90m" in out
    assert cli.main(["slurm", "-m", *WORDS, "budget=1h,2h"]) == 0
    assert "#SBATCH --time=2:15:00\n" in capsys.readouterr().out


def test_a_program_can_give_a_budget_and_ask_what_a_run_takes(measured, tmp_path, capsys):
    recipe = api.compose("mild", *WORDS[1:], budget="2m", run="mine", **{"run.root": tmp_path})
    folder = api.prepare(recipe)
    fits = int((120 - START - LAST) / (EPOCH + SAVE))
    assert read(folder / "config.yaml").max_duration == f"{fits}ep"
    whole = api.estimate(api.compose("mild", *WORDS[1:], epochs=fits))
    assert 60 * whole.most == pytest.approx(START + LAST + fits * (EPOCH + SAVE), abs=0.1)
    assert len(measured) == 1

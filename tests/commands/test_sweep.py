"""`resnet-train -m`: the runs of a sweep, their names, and the plan before them."""

import json
import os
import random
import re
import signal
import time

import pytest
import torch
import torchvision

from resnet_recipes import cuda
from resnet_recipes.base.cores import count_cores
from resnet_recipes.cuda import VisibleGpus
from resnet_recipes.jobs.machine import run_time
from resnet_recipes.network import pretrained
from resnet_recipes.planning.estimate import Estimate, Phase, RunForecast, Speeds
from resnet_recipes.run_folder.runs import iterate_runs
from tests.shared.images import create_random_images
from tests.shared.plans import TINY
from tests.shared.run_folders import create_run_folder
from tests.shared.tiny_networks import build_narrow_resnet18

#: Measured speeds: 10 ms per image.
SPEEDS = Speeds({32: (0.01,)}, evaluation_images_per_second=1000.0, images_per_device=16)


@pytest.fixture
def sweeps(monkeypatch):
    """Do not train sweeps; return the list to which each adds its folder and its runs."""
    calls = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.sweep.Sweep.train",
        lambda sweep: calls.append((sweep.root, sweep.runs)) or 0,
    )
    return calls


def test_sweep_dry_run_counts_runs_and_starts_none(sweeps, run_command):
    out = run_command(
        "resnet-train --multirun recipe=mild,medium epochs=23,30 seed=1,2,3 --dry-run"
    ).out
    assert out.count("\n  recipe ") == 1
    assert "\n12 runs, one after another, the first as above:\n" in out
    assert "\n    recipe=medium epochs=30 seed=3\n" in out
    assert re.search(r"^about \d+ (days|weeks|months|years) in total$", out, re.MULTILINE)
    assert sweeps == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("seed=1,1", "\n1 run:\n  mild-"),
        ("seed=1", "\nall times: "),
        ("seed=1,2 --no-plan", "2 runs, one after another:\n"),
    ],
)
def test_sweep_dry_run_counts_runs_once(arguments, expected, sweeps, run_command):
    out = run_command(f"resnet-train -m mild {TINY} {arguments} --dry-run").out
    assert expected in out
    assert out.startswith(expected) == ("--no-plan" in arguments)


def test_sweep_dry_run_prints_each_plan_as_json(sweeps, run_command):
    line = f"resnet-train -m mild {TINY} max_duration=8ba,9ba --dry-run --json"
    first, second = json.loads(run_command(line).out)
    assert (first["changes"], first["total_steps"]) == (["max_duration=8ba"], 8)
    assert (second["changes"], second["total_steps"]) == (["max_duration=9ba"], 9)
    assert second["run"].startswith("mild-maxduration9ba-")


def test_sweep_names_write_fold_slash_as_of(sweeps, run_command, tmp_path):
    data = create_random_images(tmp_path / "set", train=2)
    arguments = f"demo data={data} bs=2 epochs=2 data.fold=1/2,2/2"
    out = run_command(f"resnet-train -m {arguments} --dry-run").out
    assert re.findall(r"^  demo-(\w+)-", out, re.MULTILINE) == ["fold1of2", "fold2of2"]


def test_sweep_dry_run_needs_no_weights(sweeps, run_command, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    arguments = f"resnet-train -m finetune {TINY} model.weights=torchvision lr=0.1,0.2"
    assert (
        "the initial weights are not on this machine" in run_command(f"{arguments} --dry-run").out
    )
    assert "model.weights" in run_command(arguments, 3).err
    assert sweeps == []


def test_runs_of_a_sweep_open_their_weights_once(sweeps, run_command, monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)
    torch.save(build_narrow_resnet18(num_classes=7).state_dict(), "w.pt")
    opened = []
    original = pretrained.open_weights
    monkeypatch.setattr(
        pretrained, "open_weights", lambda config: opened.append(config) or original(config)
    )
    line = f"resnet-train -m finetune {TINY} model.weights=w.pt model.freeze=stem,none --dry-run"
    assert "new classifier for 10 classes (the file has 7)" in run_command(line).out
    assert len(opened) == 1


def test_sweep_predicts_the_time_of_each_run_once(sweeps, run_command, monkeypatch):
    plans = []
    monkeypatch.setattr("resnet_recipes.commands.sweep.predict_time", plans.append)
    run_command(f"resnet-train -m small {TINY} seed=1,2,3 --dry-run")
    assert [plan.recipe.seed for plan in plans] == [1, 2, 3]


def test_parallel_sweep_rejects_several_gpus_per_run(sweeps, run_command, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: VisibleGpus(2))
    arguments = f"resnet-train -m mild {TINY} seed=1,2 gpus=2 --parallel"
    assert "gpus=2: --parallel gives each run one GPU" in run_command(f"{arguments} 2", 2).err
    message = run_command(f"{arguments} 3", 2).err
    assert "--parallel 3 must be a whole number from 1 to 2\n" in message
    assert "hint:  this machine has 2 GPUs" in message
    assert sweeps == []


def test_every_run_of_a_verbose_sweep_is_verbose(sweeps, run_command):
    output = run_command(f"resnet-train -m recipe=mild {TINY} seed=1,2 --verbose").err
    ((_, points),) = sweeps
    assert all("--verbose" in arguments for arguments in points.values())
    assert "\n  hooks " in output


def test_sweep_prints_one_plan_differences_and_runs(monkeypatch, run_command):

    def train(sweep):
        for name in sweep.runs:
            create_run_folder(sweep.root, name)
        return 0

    monkeypatch.setattr("resnet_recipes.jobs.sweep.Sweep.train", train)
    out, err = run_command(f"resnet-train -m recipe=mild {TINY} lr=1,2")
    assert err.count("\n  recipe ") == 1
    assert "\n    lr=1\n" in err
    assert "\n    lr=2\n" in err
    assert out.startswith("all runs: seed=1\n\nNAME")
    assert len([line for line in out.splitlines() if line.startswith("mild-lr")]) == 2


@pytest.mark.parametrize("code", [1, 75, 130])
def test_unfinished_sweep_ends_with_its_command(code, monkeypatch, run_command):
    monkeypatch.setattr("sys.argv", ["resnet-train", "-m", "mild", "run.root=my runs", "lr=1,2"])
    monkeypatch.setattr("resnet_recipes.jobs.sweep.Sweep.train", lambda _: code)
    line = f"resnet-train -m mild {TINY} lr=1,2"
    end = "\nresume the sweep: resnet-train -m mild 'run.root=my runs' lr=1,2\n"
    assert run_command(line, code).err.endswith(end)


def test_sweep_ranks_settings_by_the_mean_over_seeds(monkeypatch, run_command):

    def train(sweep):
        states = ["stopped", "finished", "finished", "finished"]
        for top1, name in enumerate(sweep.runs, 70):
            create_run_folder(sweep.root, name, top1=top1, state=states.pop(0))
        return 0

    monkeypatch.setattr("resnet_recipes.jobs.sweep.Sweep.train", train)
    arguments = f"resnet-train -m recipe=mild {TINY} run.root=all lr=1,2 seed=1,2"
    *_, empty, head, best, worst, advice = run_command(arguments).out.splitlines()
    assert (empty, head) == ("", "SETTINGS  RUNS  MEAN TOP-1")
    assert (best, worst) == ("lr=2         2      72.50%", "lr=1         1      71.00%")
    paths = " ".join(rf"all/mild-lr{lr}-seed{seed}-\w+" for lr, seed in ("21", "22", "12"))
    assert re.fullmatch(f"try:   resnet-recipes compare {paths}", advice)


def test_sweep_plan_sums_the_printed_times(sweeps, monkeypatch, run_command):
    """A guess of 26 seconds is printed as 30; ten runs are five minutes, not four."""
    phase = Phase(32, 1, *[26 / 60] * 3, 1.0, "")
    forecast = RunForecast(Estimate((phase,), None), SPEEDS, "a guess", is_guess=True)
    monkeypatch.setattr("resnet_recipes.commands.sweep.predict_time", lambda _: forecast)
    out = run_command(f"resnet-train -m small {TINY} seed=range(10) --dry-run --no-plan").out
    assert out.count("  about 30 seconds\n") == 10
    assert "\nabout 5 minutes in total\n" in out


def test_sweep_dry_run_sums_measured_costs(sweeps, monkeypatch, run_command):
    monkeypatch.setattr(run_time, "make_speed_key", lambda plan: plan.recipe.name)
    measurements = {"mild": (SPEEDS, 1.0)}
    monkeypatch.setattr(run_time, "read_measurement", measurements.get)
    arguments = (
        f"{TINY} max_duration=6000ba launch.price=3.0 evaluation.interval=1dur "
        "~methods.progressive_resizing"
    )
    out = run_command(f"resnet-train -m recipe=mild,hot seed=1,2 {arguments} --dry-run").out
    # 2 x 6,000 steps x 16 images x 0.01 s
    assert re.search(r"^  mild-seed1-\w+  16:00\n", out, re.MULTILINE)
    assert re.search(r"^  hot-seed1-\w+  about \d+ \w+\n", out, re.MULTILINE)
    assert re.search(r"^about \d+ \w+ in total: \$[\d.]+$", out, re.MULTILINE)  # as rough as hot
    assert re.search(r"^time of 2 of 4 runs: measured on this machine ", out, re.MULTILINE)
    assert re.search(r"^time of 2 of 4 runs: a guess from the network's FLOPs", out, re.MULTILINE)
    assert re.search(r"^[\d.]+ PFLOPs of training in total$", out, re.MULTILINE)


def test_sweep_accepts_optimizers_and_schedules(sweeps, run_command):
    run_command(f"resnet-train -m recipe=mild optimizer=sgd,lamb schedule=step,linear {TINY}")
    optimizers = [point.split("-")[1] for _, points in sweeps for point in points]
    assert optimizers == ["optimizersgd", "optimizersgd", "optimizerlamb", "optimizerlamb"]


def test_sweep_runs_get_the_recipe_their_budget_chose(sweeps, run_command, monkeypatch):
    module = "resnet_recipes.command_line.recipe_arguments"
    monkeypatch.setattr(f"{module}._choose_for_budget", lambda *_: "mild")
    settings = "data.backend=synthetic bs=16 batch.bn_size=16 launch.device=cpu gpus=1"
    run_command(f"resnet-train -m {settings} budget=1h,2h")
    ((_, points),) = sweeps
    assert [arguments[0] for arguments in points.values()] == ["recipe=mild"] * 2


def test_run_names_depend_only_on_result_settings(run_command, sweeps):
    for extra in ("seed=1,2", "launch.max_restarts=1 seed=1,2", "seed=1,2 lr=0.07"):
        run_command(f"resnet-train -m recipe=mild {TINY} {extra}")
    first, again, other = (list(points) for _, points in sweeps)
    assert first == again
    assert all(name.startswith(f"mild-seed{seed}-") for name, seed in zip(first, "12", strict=True))
    assert not set(first) & set(other)


def test_sweep_removes_one_method_at_a_time(sweeps, run_command):
    line = f"resnet-train -m recipe=mild {TINY} seed=1,2 '~methods.ema,"
    run_command(f"{line}blurpool'")
    ((_, points),) = sweeps
    names = [name.rpartition("-")[0] for name in points]
    assert names == [f"mild-seed{seed}-{key}" for seed in "12" for key in ("noema", "noblurpool")]


WSD_SETTINGS = "schedule=wsd schedule.warmup=1ba ~methods.progressive_resizing"


def test_sweep_plan_reports_shared_stable_phases(sweeps, run_command):
    line = f"resnet-train -m recipe=mild {TINY} {WSD_SETTINGS} max_duration=20ba,10ba --dry-run"
    out = run_command(line).out
    assert "    max_duration=20ba, from the stable phase of mild-maxduration10ba-" in out
    total, saved = re.search(
        r"^(.+) PFLOPs .*; shared stable phases save (.+)$", out, re.MULTILINE
    ).groups()
    assert float(saved) / float(total) == pytest.approx(8 / 22, rel=0.01)
    assert "stable phase" not in run_command(line.replace("schedule=wsd", "schedule=cosine")).out


def test_sweep_counts_shared_stable_phase_once(sweeps, monkeypatch, run_command):
    monkeypatch.setattr(run_time, "read_measurement", lambda _: (SPEEDS, 1.0))
    durations = "max_duration=20000ba,10000ba evaluation.interval=1dur"
    arguments = f"{TINY} {WSD_SETTINGS} {durations} launch.price=60"
    out = run_command(f"resnet-train -m recipe=mild {arguments} --dry-run").out
    # 12,000 steps of the longer run; the shorter run trains 8,000 of them
    assert re.search(r"^  mild-maxduration20000ba-\w+  32:00\n", out, re.MULTILINE)
    minutes, seconds, cost = re.search(
        r"^about (\d+):(\d+) in total: \$(.+)$", out, re.MULTILINE
    ).groups()
    assert float(cost) == pytest.approx(int(minutes) + int(seconds) / 60, abs=0.02)


@pytest.mark.slow
@pytest.mark.skipif(count_cores() < 2, reason="a sweep of two runs at a time needs two cores")
def test_killed_sweep_ends_with_uninterrupted_results(forks, tmp_path):
    intervals = "checkpoint.interval=2ba evaluation.interval=1dur max_duration=16ba,8ba,12ba"
    line = f"resnet_recipes -m --parallel=2 recipe=mild {TINY} {intervals} {WSD_SETTINGS}"
    arguments = line.split()
    rng = random.Random(0)
    kills = []
    alone = tmp_path / "alone"
    killed = tmp_path / "killed"
    alone.mkdir()
    killed.mkdir()
    assert forks.run(alone, *arguments).wait(100)[0] == 0
    for finished in range(2):  # late enough that some runs are finished and some are not
        sweep = forks.run(killed, *arguments)
        while len(list(killed.glob("runs/*/summary.json"))) < finished:
            assert sweep.poll() is None, sweep.read_streams()
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        os.kill(sweep.pid, signal.SIGKILL)
        kills.append(sweep.wait()[0])
    code, _, errors = forks.run(killed, *arguments).wait(100)
    assert (code, kills) == (0, [-signal.SIGKILL] * 2)
    assert "already finished" in errors
    assert "finished runs: 3 of 3, in runs\n" in errors
    assert len(read_results(alone)) == 3
    extended = [run.extends for run in iterate_runs(killed / "runs") if run.extends]
    assert len(extended) == 2
    assert read_results(killed) == read_results(alone)


def read_results(root):
    results = {}
    for path in root.glob("runs/*/summary.json"):
        summary = json.loads(path.read_text())
        results[path.parent.name] = (
            summary["recipe"],
            summary["raw_loss"],
            (path.parent / "weights.safetensors").read_bytes(),
        )
    return results

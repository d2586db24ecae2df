"""`resnet-recipes compare` as a user sees it."""

import json

import pytest

from resnet_recipes.commands import verbs
from tests.run_folders import run_folder


def test_settings_machines_and_results_that_differ_are_shown(tmp_path, capsys):
    folders = [
        str(run_folder(tmp_path, "a")),
        str(run_folder(tmp_path, "b", top1=72.5, config={"optimizer": {"lr": 1.0}})),
    ]
    assert verbs.run(["compare", *folders]) == 0
    out = capsys.readouterr().out
    assert "optimizer.lr  2.0  1.0" in out
    assert "MACHINE: the same" in out
    assert "72.50 %" in out
    assert "PFLOPs          1,250     1,250" in out
    assert "one seed cannot tell" in out


def test_runs_may_have_the_names_of_recipes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mild", "hot"):
        run_folder(tmp_path / "runs", name)
    assert verbs.run(["compare", "mild", "hot"]) == 0


def test_seeds_give_the_noise_that_a_difference_is_held_against(tmp_path, capsys):
    def seeds(name: str, top1: float, lr: float) -> list[str]:
        return [
            str(
                run_folder(
                    tmp_path,
                    f"{name}{seed}",
                    top1=top1 + seed / 10,
                    seed=seed,
                    config={"optimizer": {"lr": lr}},
                )
            )
            for seed in range(3)
        ]

    near = seeds("a", 70, 2.0)
    verbs.run(["compare", *near, *seeds("b", 75, 1.0)])
    assert "5.00 points apart, more than twice the standard error" in capsys.readouterr().out
    verbs.run(["compare", *near, *seeds("d", 70.12, 1.0)])  # their error is 0.08
    assert "0.12 points apart, no more than twice the standard" in capsys.readouterr().out
    verbs.run(["compare", *near, *seeds("c", 70.05, 3.0)])
    assert "0.05 points apart, no more than twice" in capsys.readouterr().out
    verbs.run(["compare", *near, "--json"])
    assert json.loads(capsys.readouterr().out)["groups"][0]["noise"] == pytest.approx(0.1)


def test_one_seed_is_said_in_the_singular(tmp_path, capsys):
    runs = [run_folder(tmp_path, f"a{seed}", seed=seed) for seed in range(2)]
    verbs.run(["compare", *map(str, runs), str(run_folder(tmp_path, "b", config={"name": "b"}))])
    assert "% over 1 seed: b\n" in capsys.readouterr().out


def test_a_table_that_is_too_wide_for_the_terminal_is_stacked(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    folders = [
        str(run_folder(tmp_path, f"{i}", config={"name": f"a-recipe-with-a-long-name-{i // 2}"}))
        for i in range(4)
    ]
    verbs.run(["compare", *folders])
    out = capsys.readouterr().out
    assert (
        "  name\n    A, B: a-recipe-with-a-long-name-0\n    C, D: a-recipe-with-a-long-name-1\n"
        in out
    )
    assert "RESULTS         A " in out

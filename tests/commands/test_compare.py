"""The output of `resnet-recipes compare`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.run_folder.hits import Hits
from tests.fixtures import Said
from tests.run_folders import run_folder


@pytest.fixture
def compared(enter: Callable[..., Said]):
    """Return a function that prints the comparison of the named runs in this folder."""
    return lambda names: enter(f"resnet-recipes compare {names}").out


def seeds(name: str, top1: float, count: int = 3, /, **config: object) -> str:
    """Make runs of a recipe with different seeds and accuracies."""
    names = [f"./{name}{seed}" for seed in range(count)]
    for seed, one in enumerate(names):
        run_folder(Path(), one, top1=top1 + seed / 10, seed=seed, config=config)
    return " ".join(names)


def test_compare_accepts_runs_named_like_recipes(compared):
    for name in ("mild", "hot"):
        run_folder(Path("runs"), name)
    assert compared("mild hot")


def test_compare_reports_noise_of_seeds(compared):
    near = seeds("a", 70, optimizer={"lr": 2.0})
    for name, top1, said in (
        ("b", 75, "5.00 points apart, more than twice the standard error"),
        ("d", 70.12, "0.12 points apart, no more than twice the standard"),  # standard error 0.08
        ("c", 70.05, "0.05 points apart, no more than twice"),
    ):
        assert said in compared(f"{near} {seeds(name, top1, optimizer={'lr': top1})}")
    groups = json.loads(compared(f"{near} --json"))["groups"]
    assert groups[0]["noise"] == pytest.approx(0.1)


def test_unfinished_runs_do_not_narrow_the_standard_error(compared):
    names = []
    for lr, top1 in ((1.0, 70.0), (2.0, 70.12)):
        settings = {"optimizer": {"lr": lr}}
        names.append(seeds(f"lr{lr:.0f}-", top1, **settings))
        for seed in range(3, 8):
            names.append(f"./lr{lr:.0f}-{seed}")
            run_folder(
                Path(),
                names[-1],
                top1=10.0 * seed,
                seed=seed,
                state="failed",
                **{"config": settings},
            )
    said = compared(" ".join(names))
    # std 0.1 over three seeds gives sqrt(2 * 0.01 / 3) = 0.08; eight seeds would give 0.05
    assert "The best two are 0.12 points apart, no more than twice the standard error" in said
    # 4 * (0.1**2 + 0.1**2) / 0.12**2 is 5.6
    assert "About 6 seeds each would settle" in said
    assert "(0.08)" in said
    assert "+- 0.10% over 3 seeds" in said


def test_compare_stacks_tables_wider_than_terminal(compared, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = "a-recipe-with-a-long-name"
    out = compared(f"{seeds('a', 70, 2, name=f'{long}-0')} {seeds('b', 70, 2, name=f'{long}-1')}")
    assert f"  name\n    A, B: {long}-0\n    C, D: {long}-1\n" in out
    assert "RESULTS         A " in out


def test_compare_of_two_runs_prints_verdict(compared):
    for name, flags, digest in (("a", "1" * 30, "d"), ("b", "1" * 20 + "0" * 10, "d")):
        Hits(digest, flags).write(run_folder(Path(), name))
    said = " ".join(compared("./a ./b").split())
    assert "A and B, the same 30 images: +33.33 points, 95% interval" in said
    assert "only A is right on 10, only B on 0 (McNemar's p 0.002)" in said
    assert "These two networks differ." in said
    Hits("d", "1" * 28 + "00").write(Path("b"))
    assert "Not settled: these two networks may be equally accurate" in compared("./a ./b")
    Hits("other", "1" * 30).write(Path("b"))
    assert "the same 30 images" not in compared("./a ./b")

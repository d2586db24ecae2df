"""The output of `resnet-recipes compare`."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.run_folder.correct_images import CorrectImages
from tests.shared.fixtures import Streams
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_values


@pytest.fixture
def compare(run_command: Callable[..., Streams]):
    """Return a function that prints the comparison of the named runs in this folder."""
    return lambda names: run_command(f"resnet-recipes compare {names}").out


def create_runs(**configs: dict[str, object]) -> None:
    """Create a run in the current folder for each name and config."""
    for name, config in configs.items():
        create_run_folder(Path(), name, config=config)


def create_seeds(name: str, top1: float, count: int = 3, /, **config: object) -> str:
    """Create runs of a recipe with different seeds and accuracies."""
    names = [f"./{name}{seed}" for seed in range(count)]
    for seed, one in enumerate(names):
        create_run_folder(Path(), one, top1=top1 + seed / 10, seed=seed, config=config)
    return " ".join(names)


def test_compare_accepts_runs_named_like_recipes(compare):
    for name in ("mild", "hot"):
        create_run_folder(Path("runs"), name)
    assert re.match(r"A  runs/mild .*\nB  runs/hot ", compare("mild hot"))


def test_compare_omits_price_and_limits_of_a_run(compare):
    for name, price in (("a", 1.2), ("b", None)):
        launch = {"price": price, "max_wall": f"{price}h"}
        data = {"root": "/pets", "cache": name}
        create_run_folder(Path(), name, config={"launch": launch, "data": data})
    out = compare("./a ./b")
    assert "SETTINGS: identical" in out
    assert "launch.price" not in out
    assert re.search(r"^cost +\$0.10 +-$", out, re.MULTILINE)


def test_compare_reports_noise_of_seeds(compare):
    names = create_seeds("a", 70, optimizer={"lr": 2.0})
    names += " " + create_seeds("b", 75, 1, optimizer={"lr": 1.0})
    message = compare(names)
    message = " ".join(message.split())
    assert "A, B, C: top-1 70.10 +- 0.10% over 3 runs, 4:00 of training on average" in message
    assert "D: top-1 75.00% over 1 run, 4:00 of training SETTINGS" in message
    groups = json.loads(compare(f"{names} --json"))["groups"]
    assert groups[0]["noise"] == pytest.approx(0.1)


def test_compare_shows_epochs_as_typed_without_gpus(compare):
    once = {"scale_schedule_ratio": 1.0}
    create_runs(
        a=once | {"max_duration": "2ep", "launch": {"gpus": "auto"}},
        b=once | {"max_duration": "4ep", "launch": {"gpus": 1}},
    )
    message = compare("./a ./b")
    assert re.search(r"^epochs +2 +4$", message.partition("SETTINGS")[2], re.MULTILINE)
    assert "gpus" not in message


def test_compare_suggests_two_other_seeds_of_each_run(compare):
    create_run_folder(Path(), "a", seed=2)
    create_run_folder(Path(), "b", seed=42, config={"optimizer": {"lr": 1.0}})
    commands = [
        f"  resnet-train -m {run}/config.yaml seed=1,{other}" for run, other in ("a3", "b2")
    ]
    assert "\n".join(("", *commands, "")) in compare("./a ./b")


def test_compare_excludes_unfinished_runs_from_seeds(compare):
    names = create_seeds("a", 70)
    create_run_folder(Path(), "failed", top1=10.0, seed=3, state="failed")
    assert "top-1 70.10 +- 0.10% over 3 runs" in compare(f"{names} ./failed")


def test_compare_suggests_resuming_an_unfinished_run(compare):
    create_run_folder(Path("runs"), "done", image_count=5000)
    create_run_folder(Path("runs"), "half", state="stopped", image_count=5000, epochs=8)
    message = compare("done half")
    assert (
        "B is not finished: stopped at epoch 4.00 of 8.\n  resume: resnet-train --resume runs/half"
        in message
    )
    assert "seed=" not in message


def test_compare_lists_clocks_of_papers_only_for_imagenet(compare):
    for name, images in (("a", 5000), ("b", 5000), ("c", 1_281_167)):
        create_run_folder(Path(), name, image_count=images)
    clocks = ("steady state", "MLPerf's clock")
    assert not any(clock in compare("./a ./b") for clock in clocks)
    assert all(clock in compare("./a ./c") for clock in clocks)


@pytest.fixture
def judge(compare):
    """Return a function that compares two groups of two seeds by their numbers of hits."""
    names = create_seeds("a", 70, 2, optimizer={"lr": 2.0})
    names += " " + create_seeds("b", 75, 2, optimizer={"lr": 1.0})

    def judge(images: int, *hits: int, flag: str = "") -> str:
        for name, count in zip(("a0", "a1", "b0", "b1"), hits, strict=True):
            CorrectImages("d", "1" * count + "0" * (images - count)).write(Path(name))
        return " ".join(compare(f"{names} {flag}").split())

    return judge


def test_compare_judges_groups_of_seeds_together(judge):
    message = judge(40, 30, 28, 20, 22)
    assert (
        "A, B vs. C, D, the same 40 images: +20.00 points, 95% interval +5.01 to +34.99" in message
    )
    assert "over images and seeds. Settled." in message
    (pair,) = json.loads(judge(40, 30, 28, 20, 22, flag="--json"))["pairs"]
    assert pair["runs"] == "A, B vs. C, D"
    assert pair["interval"] == pytest.approx([5.01, 34.99], abs=0.01)


def test_compare_prints_no_noise_of_equal_runs(compare):
    create_runs(equal1={"seed": 1}, equal2={"seed": 2})
    message = " ".join(compare("./equal1 ./equal2").split())
    assert "A, B: top-1 70.00% in each of 2 runs, 4:00 of training on average" in message
    assert "+- 0.00" not in message


def test_compare_of_other_images_advises_no_seeds(compare):
    names = create_seeds("a", 70, 2)
    for run, digest in (("a0", "one"), ("a1", "two")):
        Path(run, "data.json").write_text(json.dumps({"eval_digest": digest}))
    assert "A, B: top-1 70.05 +- 0.07% over 2 runs" in compare(names)  # a group, such as folds
    create_run_folder(Path(), "other", config={"optimizer": {"lr": 1.0}})
    Path("other/data.json").write_text(json.dumps({"eval_digest": "three"}))
    message = compare(f"{names} ./other")
    assert "Not comparable: the runs were evaluated on different images." in message
    assert "seed" not in message.partition("RESULTS")[2].partition("SETTINGS")[0]


def test_compare_judges_only_runs_with_image_results(judge, compare):
    judge(40, 30, 28, 20, 22)
    Path("a0/hits.json").unlink()
    message = " ".join(compare("./a0 ./a1 ./b0 ./b1").split())
    assert "B vs. C, D, the same 40 images: +17.50 points" in message
    assert "over images and seeds." in message


@pytest.mark.parametrize(
    ("counts", "advice"),
    parse_values("""
[40, 24, 24, 21, 21] | About 160 images would settle
[400, 300, 260, 250, 250] | About 11 seeds of each would settle
[40, 21, 28, 20, 22] | Only more images together with more seeds would settle
[40, 21, 21, 21, 21] | equally accurate.
"""),
)
def test_compare_advises_how_to_settle_a_difference(judge, counts, advice):
    message = judge(*counts)
    assert "Not settled: they may be equally accurate." in message
    assert advice in message
    assert ("settle a difference" in message) is ("settle" in advice)


def test_compare_names_runs_in_rows_wider_than_terminal(compare, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = f"/{'x' * 40}"
    create_runs(
        a={"data": {"root": long}, "model": {"weights": "w"}},
        b={"data": {"root": "/b"}, "model": {"weights": f"{long}/w"}},
        c={"data": {"root": long}, "model": {"weights": "/v"}},
        d={"data": {"root": f"{long}/w"}, "model": {"weights": "w"}},
    )
    out = compare("./a ./b")
    assert f"SETTINGS  {'A':41}  B\ndata      {long}  /b\n" in out
    assert f"model.weights  A: w  B: {long}/w\n" in out
    assert "\nmodel.weights  /v  w\n" in compare("./c ./d")
    monkeypatch.setenv("COLUMNS", "50")
    assert f"model.weights\n  A: w\n  B: {long}/w\n" in compare("./a ./b")


def test_compare_prints_the_verdict_before_the_settings(compare):
    create_run_folder(Path(), "a", recipe="mild", config={"optimizer": {"lr": 1.0}})
    settings = {"optimizer": {"lr": 2.0}, "model": {"weights": ""}}
    create_run_folder(Path(), "b", recipe="hot", config=settings, state="stopped", epochs=8)
    out = compare("./a ./b")
    assert out.startswith("A  a  recipe=mild\nB  b  recipe=hot\n\nRESULTS")
    parts = ("RESULTS", "4/8", "B is not finished", "SETTINGS", "MACHINE")
    assert sorted(parts, key=out.index) == list(parts)
    assert "name " not in out


def test_compare_prints_settings_of_an_omitted_method(compare):
    create_runs(
        a={"methods": {}},
        b={"methods": {"ema": {"half_life": "20ba", "delay": "0ba"}}},
        c={"methods": {"ema": {"half_life": "40ba", "delay": "0ba"}}},
    )
    rows = [line.split() for line in compare("./a ./b ./c").splitlines()]
    assert ["methods.ema.half_life", "-", "20ba", "40ba"] in rows
    assert ["methods.ema.delay", "-", "0ba", "0ba"] in rows


def test_compare_of_two_runs_prints_verdict(compare):
    for name, flags in (("a", "1" * 30), ("b", "1" * 20 + "0" * 10)):
        CorrectImages("d", flags).write(create_run_folder(Path(), name, recipe=name))
    message = " ".join(compare("./a ./b").split())
    assert "A vs. B, the same 30 images: +33.33 points, 95% interval" in message
    assert message.index("Settled") < message.index("Train more seeds")
    assert "over images. Settled for these networks; other seeds may differ." in message
    CorrectImages("d", "1" * 28 + "00").write(Path("b"))
    assert "Not settled: they may be equally accurate" in compare("./a ./b")
    CorrectImages("other", "1" * 30).write(Path("b"))
    assert "the same 30 images" not in compare("./a ./b")


def test_compare_judges_folds_together(compare):
    names = []
    for rate in (1.0, 2.0):
        for part, (digest, images) in enumerate((("d", 20), ("e", 19)), 1):
            settings = {"data": {"fold": f"{part}/2"}, "optimizer": {"lr": rate}}
            names.append(f"./lr{rate:.0f}-{part}")
            folder = create_run_folder(Path(), names[-1], config=settings)
            wrong = 9 if rate == 1 else part
            CorrectImages(digest, "0" * wrong + "1" * (images - wrong)).write(folder)
    message = " ".join(compare(" ".join(names)).split())
    assert "A, B vs. C, D, the same 39 images: -38.46 points, 95% interval" in message
    assert "over images. Settled for these networks; other seeds may differ." in message


def test_compare_rejects_a_folder_of_runs(run_command):
    create_run_folder(Path("runs"), "a")
    message = run_command("resnet-recipes compare runs runs", 3).err
    assert "error: runs is a folder of runs, not a run\n" in message
    assert "try:   resnet-recipes runs runs\n" in message


@pytest.mark.parametrize(
    ("typed", "pair"), [("runs", "runs/b runs/a"), ("a", "runs/a runs/b"), ("my", "my/c runs/b")]
)
def test_compare_of_one_suggests_two_runs(typed, pair, run_command):
    for folder in ("runs/a", "runs/b", "my/c"):
        create_run_folder(Path(folder).parent, Path(folder).name)
        os.utime(f"{folder}/overrides.txt", (2_000_000_000 + ord(folder[-1]),) * 2)
    message = run_command(f"resnet-recipes compare {typed}", 2).err
    assert f"try:   resnet-recipes compare {pair}\n" in message
    run_command(f"resnet-recipes compare {pair}")

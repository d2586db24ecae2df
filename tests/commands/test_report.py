"""`resnet-recipes report`: the page as a file."""

import json
import re
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.commands import report, verbs
from resnet_recipes.report.page.names import placed
from tests.run_folders import run_folder

SUMMARY = "summary.json"


def specs(page: Path) -> dict[str, dict]:
    """Return the plots of a page by name."""
    found = re.findall(
        r'<script type="application/json" id="([\w-]+)-spec">(.*?)</script>',
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return {name: json.loads(text) for name, text in found}


def took(folder: Path, minutes: float) -> None:
    """Let a run have taken some minutes of training, and a tenth more in all."""
    summary = json.loads((folder / SUMMARY).read_text())
    times = {"training_seconds": 60.0 * minutes, "wall_seconds": 66.0 * minutes}
    (folder / SUMMARY).write_text(json.dumps(summary | times))


def drawn(page: Path, figure: str, kind: str) -> list[list[dict]]:
    """Return the values of each layer of a figure with a kind of mark, but of empty ones."""
    layers = specs(page)[figure]["layer"]
    marks = [(layer["mark"], layer["data"]["values"]) for layer in layers]
    return [
        values
        for mark, values in marks
        if values and kind == (mark if mark == "rule" else mark["type"])
    ]


def test_the_front_holds_the_runs_that_no_other_beats(tmp_path):
    for name, top1, minutes in (("a", 70.0, 10), ("b", 72.0, 20), ("c", 71.0, 30)):
        took(run_folder(tmp_path, name, top1=top1, config={"optimizer": {"lr": top1}}), minutes)
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "36"])
    for name, x, scale in (("time", "minutes", 1), ("cost", "cost", 1.1 * 36 / 60)):
        front = drawn(tmp_path / "r.html", name, "line")[0]
        assert [point["top1_percent"] for point in front] == [70.0, 72.0]
        assert [point[x] for point in front] == pytest.approx([10.0 * scale, 20.0 * scale])


def test_results_for_imagenet_are_behind_runs_on_imagenet_alone(tmp_path):
    for name, count in (("small", 5000), ("large", 1_281_167)):
        for lr in (1, 2):
            config = {"optimizer": {"lr": lr}}
            run_folder(tmp_path / name, f"a{lr}", images=count, config=config)
    for name, published in (("small", 0), ("large", 1)):
        verbs.run(["report", str(tmp_path / name), "--out", str(tmp_path / "r.html")])
        points = drawn(tmp_path / "r.html", "time", "point")
        assert len(points) == 1 + published
        assert {row["clock"] for row in points[0] if "clock" in row} == (
            {"papers"} if published else set()
        )


def test_lines_join_lengths_alone_and_are_called_after_what_differs(tmp_path):
    for lr in (0.1, 0.2):
        for epochs in (2, 4):
            for seed in (1, 2):
                config = {"optimizer": {"lr": lr}, "max_duration": f"{epochs}ep"}
                folder = run_folder(
                    tmp_path,
                    f"{lr}-{epochs}-{seed}-6b3f2a91",
                    seed=seed,
                    epochs=epochs,
                    config=config,
                    images=5000,
                )
                took(folder, epochs + seed)
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    (names,) = drawn(tmp_path / "r.html", "time", "text")
    assert {row["series"] for row in names} == {"lr 0.1", "lr 0.2"}
    (points,) = drawn(tmp_path / "r.html", "time", "point")
    assert [(row["name"], row["seeds"]) for row in points][:2] == [
        ("lr 0.1, 2 epochs", 2),
        ("lr 0.1, 4 epochs", 2),
    ]
    assert points[0]["minutes"] == pytest.approx(3.5)
    curves = {row["name"] for row in specs(tmp_path / "r.html")["course-loss"]["data"]["values"]}
    assert "lr 0.2, 4 epochs, seed 1" in curves
    assert len(curves) == 8


def test_names_stand_beside_their_points_and_not_on_each_other():
    rows = [
        {"series": name, "minutes": minutes, "top1_percent": top1}
        for name, minutes, top1 in (("far", 1, 60), ("a", 50, 70), ("b", 52, 70), ("c", 50, 70.1))
    ]
    text = placed([[row] for row in rows], "minutes", [])
    assert [row["series"] for row in text] == ["far", "a", "b", "c"]
    assert len({(row["align"], row["dy"]) for row in text[1:]}) == 3
    alone = placed([[rows[0]]], "minutes", [rows[0]])
    assert (alone[0]["align"], alone[0]["dx"], alone[0]["dy"]) == ("left", 8, 0)


def test_page_and_pictures_may_be_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(report, "plotting", lambda key: None)
    drawn = []
    monkeypatch.setattr(report, "write_pictures", lambda folder, figures: drawn.append(folder))
    verbs.run(["report", "--published", "--out=~/r.html", "--png=~/pictures"])
    assert specs(tmp_path / "r.html")
    assert drawn == [tmp_path / "pictures"]


def test_a_page_of_runs_has_every_plot_and_names_are_escaped(tmp_path):
    bad = "</script><script>alert(1)</script>"[:60].replace("/", "-")
    run_folder(tmp_path, bad, seed=1, top1=70.1)
    run_folder(tmp_path, "plain", seed=2, config={"optimizer": {"lr": bad}})
    (tmp_path / "plain" / "overrides.txt").write_text("x=</script><script>alert(2)</script>\n")
    (tmp_path / "plain" / "command.txt").write_text("</script><script>alert(3)</script>\n")
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "32.77/h"])
    assert set(specs(tmp_path / "r.html")) == {
        "time",
        "cost",
        "pflops",
        "epochs",
        "phases",
        *(
            f"course-{key}"
            for key in (
                "loss",
                "lr",
                "pixels",
                "images_per_second",
                "data_wait_share",
            )
        ),
    }
    assert "<script>alert" not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_published_results_alone_are_a_page_and_an_empty_folder_is_not(tmp_path):
    verbs.run(["report", "--published", "--out", str(tmp_path / "published.html")])
    assert set(specs(tmp_path / "published.html")) == {"time"}
    assert "Filled: runs" not in (tmp_path / "published.html").read_text(encoding="utf-8")
    (tmp_path / "none").mkdir()
    with pytest.raises(NotReadyError, match="has no runs"):
        verbs.run(["report", str(tmp_path / "none"), "--out", str(tmp_path / "none.html")])
    assert not (tmp_path / "none.html").exists()


def test_the_head_answers_and_says_shared_settings_once(tmp_path):
    for name, top1, minutes in (("a", 70.0, 10), ("b", 72.0, 20), ("c", 71.0, 30)):
        config = {"optimizer": {"lr": top1}}
        folder = run_folder(tmp_path, name, top1=top1, images=5000, config=config)
        (folder / "overrides.txt").write_text(f"batch.global_size=64\nseed={top1:g}\n")
        took(folder, minutes)
        summary = json.loads((folder / SUMMARY).read_text())
        (folder / SUMMARY).write_text(json.dumps(summary | {"training_pflops": 0.0018}))
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "36"])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Best: lr 72.0, 72.00 % top-1 in 20:00 of training, $13.20." in page
    assert page.count(">0.0018<") == 3
    assert "Data: 5,000 images to train on." in page
    assert "Accuracies on different images" not in page
    assert "All published results" not in page, "they are for ImageNet"
    assert "All have batch.global_size=64" in page
    assert page.count("batch.global_size=64") == 1
    front = page[page.index("The front:") : page.index("<h2>Accuracy")]
    assert re.findall(r"<td>(lr [\d.]+)</td>", front) == ["lr 70.0", "lr 72.0"]


def test_each_data_set_has_its_own_best_and_its_own_plots(tmp_path):
    for name, images, top1 in (("a", 5000, 60), ("b", 5000, 50), ("c", 6000, 90), ("d", 6000, 80)):
        took(run_folder(tmp_path, name, images=images, top1=top1, recipe=f"of_{name}"), top1)
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Accuracies on different images cannot be compared" in page
    assert re.findall(r"Best: (\w+)", page) == ["of_a", "of_c"]
    for figure, series in (("data1-time", {"of_a", "of_b"}), ("data2-time", {"of_c", "of_d"})):
        assert {row["series"] for row in drawn(tmp_path / "r.html", figure, "point")[0]} == series


def test_one_run_has_its_accuracy_settings_and_next_command_and_no_plot_of_a_dot(tmp_path):
    folder = run_folder(tmp_path, "mine", images=5000)
    verbs.run(["report", str(folder), "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "70.00 % top-1" in page
    assert "Settings: seed=1" in page
    assert f"Next: resnet-recipes predict {folder} IMAGES" in page
    assert "time" not in specs(tmp_path / "r.html")
    stopped = run_folder(tmp_path, "stopped", images=5000, state="stopped")
    verbs.run(["report", str(stopped), "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"Next: resnet-train --resume {stopped}" in page


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path):
    run_folder(tmp_path, "whole", images=5000)
    (run_folder(tmp_path, "damaged") / SUMMARY).write_text("[")
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<li>damaged: " in page
    assert "70.00 % top-1" in page


def test_plots_are_written_as_pictures(tmp_path):
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    run_folder(tmp_path / "runs", "a")
    verbs.run(
        [
            "report",
            str(tmp_path / "runs"),
            "--out",
            str(tmp_path / "r.html"),
            "--png",
            str(tmp_path / "png"),
        ]
    )
    assert (tmp_path / "png" / "time.png").read_bytes().startswith(b"\x89PNG")
    assert {path.stem for path in (tmp_path / "png").iterdir()} == set(specs(tmp_path / "r.html"))

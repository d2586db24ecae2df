"""`resnet-recipes report`: the page as a file."""

import json
import re
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.commands import report, verbs
from tests.run_folders import run_folder


def specs(page: Path) -> dict[str, dict]:
    """Return the plots of a page by name."""
    found = re.findall(
        r'<script type="application/json" id="([\w-]+)-spec">(.*?)</script>',
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return {name: json.loads(text) for name, text in found}


def test_the_front_holds_the_runs_that_no_other_beats(tmp_path):
    for name, top1 in (("a", 70.0), ("b", 72.0), ("c", 71.0)):
        folder = run_folder(tmp_path, name, top1=top1)
        summary = json.loads((folder / "summary.json").read_text())
        minutes = {"a": 10, "b": 20, "c": 30}[name]
        (folder / "summary.json").write_text(
            json.dumps(
                summary | {"training_seconds": 60.0 * minutes, "wall_seconds": 66.0 * minutes}
            )
        )
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "36"])
    for name, x, scale in (("time", "minutes", 1), ("cost", "cost", 1.1 * 36 / 60)):
        layers = specs(tmp_path / "r.html")[name]["layer"]
        front = next(layer["data"]["values"] for layer in layers if layer["mark"]["type"] == "line")
        assert [point["top1_percent"] for point in front] == [70.0, 72.0]
        assert [point[x] for point in front] == pytest.approx([10.0 * scale, 20.0 * scale])


def test_results_for_imagenet_are_behind_runs_on_imagenet_alone(tmp_path):
    run_folder(tmp_path / "small", "a", images=5000)
    run_folder(tmp_path / "large", "b")
    for name, published in (("small", 0), ("large", 1)):
        verbs.run(["report", str(tmp_path / name), "--out", str(tmp_path / "r.html")])
        layers = specs(tmp_path / "r.html")["time"]["layer"]
        points = [layer["data"]["values"] for layer in layers if layer["mark"]["type"] == "point"]
        assert len(points) == 1 + published
        assert {row["clock"] for row in points[0] if "clock" in row} == (
            {"papers"} if published else set()
        )


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
    run_folder(tmp_path, "plain", seed=2)
    (tmp_path / "plain" / "overrides.txt").write_text("x=</script><script>alert(2)</script>\n")
    (tmp_path / "plain" / "command.txt").write_text("</script><script>alert(3)</script>\n")
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "32.77/h"])
    assert set(specs(tmp_path / "r.html")) == {
        "time",
        "cost",
        "tradeoff",
        "tradeoff-pflops",
        "tradeoff-epochs",
        "phases",
        *(
            f"course-{key}"
            for key in (
                "top1_percent",
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
    for name, top1, seconds in (("a", 70.0, 600), ("b", 72.0, 1200.1), ("c", 71.0, 1800)):
        folder = run_folder(tmp_path, name, top1=top1, images=5000)
        (folder / "overrides.txt").write_text(f"batch.global_size=64\nseed={top1:g}\n")
        summary = json.loads((folder / "summary.json").read_text())
        changed = {"training_seconds": seconds, "training_pflops": 0.0018}
        (folder / "summary.json").write_text(json.dumps(summary | changed))
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--price", "36"])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Best: b, 72.00 % top-1 in 20:00 of training, $3.00." in page
    assert 'value="20.01"' in page, "the best run is within what the field says first"
    assert page.count(">0.0018<") == 3
    assert "Data: 5,000 images to train on." in page
    assert "Accuracies on different images" not in page
    assert "All published results" not in page, "they are for ImageNet"
    assert "All of them have batch.global_size=64" in page
    assert page.count("batch.global_size=64") == 1
    assert page.count("seed=70") == 1
    front = page[page.index("The front:") : page.index("<h2>Accuracy")]
    assert re.findall(r"<td>(\w)</td>", front) == ["a", "b"]


def test_runs_on_different_images_are_not_compared_unsaid(tmp_path):
    for name, images in (("a", 5000), ("b", 6000)):
        run_folder(tmp_path, name, images=images)
    verbs.run(["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Accuracies on different images cannot be compared" in page


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


def test_mistakes_are_reported(tmp_path):
    with pytest.raises(NotReadyError, match="no such run, file or folder"):
        verbs.run(["report", str(tmp_path / "nowhere")])
    with pytest.raises(NotReadyError, match="cannot be written"):
        verbs.run(["report", "--published", "--out", str(tmp_path / "no" / "r.html")])
    with pytest.raises(RecipeError, match="takes no runs"):
        verbs.run(["report", "--published", "runs"])

"""The page that `resnet-recipes report` writes."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from resnet_recipes.report.page.charts import label_lines
from tests.shared.fixtures import Streams
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_values

RUNS = Path("runs")
SUMMARY = "summary.json"


@pytest.fixture
def render_page(run_command: Callable[..., Streams]) -> Callable[..., str]:
    """Work in an empty folder; return a function that writes r.html and returns its text."""

    def make_page(arguments: str = "runs") -> str:
        run_command(f"resnet-recipes report {arguments} --out r.html")
        return Path("r.html").read_text(encoding="utf-8")

    return make_page


def read_plots(text: str) -> dict[str, dict]:
    script = r'<script type="application/json" id="([\w-]+)-spec">(.*?)</script>'
    return {name: json.loads(spec) for name, spec in re.findall(script, text, re.DOTALL)}


def set_minutes(folder: Path, minutes: float, **more: float) -> None:
    """Set the minutes of training of a run; the total time is a tenth longer."""
    summary = json.loads((folder / SUMMARY).read_text())
    times = {"training_seconds": 60.0 * minutes, "wall_seconds": 66.0 * minutes}
    (folder / SUMMARY).write_text(json.dumps(summary | times | more))


def create_run(name: str, lr: float | None = None, **more: object) -> Path:
    """Create a run on 5,000 images in ./runs, with a learning rate if any."""
    config = {} if lr is None else {"optimizer": {"lr": lr}}
    return create_run_folder(RUNS, name, image_count=5000, config=config, **more)


def write_facts(folder: Path, train: int, evaluated: int, digest: str = "") -> None:
    facts = {"train_examples": train, "eval_examples": evaluated, "eval_digest": digest}
    (folder / "data.json").write_text(json.dumps(facts))


def create_three_runs(**more: float) -> None:
    """Create three runs with lr values like their accuracies; the second is the best."""
    for name, top1, minutes in (("a", 70.0, 10), ("b", 72.0, 20), ("c", 71.0, 30)):
        folder = create_run(name, top1, top1=top1)
        (folder / "overrides.txt").write_text(f"batch.global_size=64\nseed={top1:g}\n")
        set_minutes(folder, minutes, **more)


def list_plotted_values(page: str, figure: str, kind: str) -> list[list[dict]]:
    """Return the values of each non-empty layer of a figure that uses a given mark."""
    layers = [
        one for layer in read_plots(page)[figure]["layer"] for one in layer.get("layer", [layer])
    ]
    marks = [(layer["mark"], layer["data"]["values"]) for layer in layers]
    return [
        values
        for mark, values in marks
        if values and kind == (mark if mark == "rule" else mark["type"])
    ]


def test_report_pareto_front_contains_optimal_runs(render_page):
    create_three_runs()
    text = render_page("runs --price 36")
    assert '<td class="number" data-value="10.0">10:00</td>' in text
    for name, x, scale in (("time", "minutes", 1), ("cost", "cost", 1.1 * 36 / 60)):
        front = list_plotted_values(text, name, "line")[0]
        assert [point["top1_percent"] for point in front] == [70.0, 72.0]
        assert [point[x] for point in front] == pytest.approx([10.0 * scale, 20.0 * scale])


def test_report_pareto_front_ignores_small_differences_in_time(render_page):
    """The second run is more accurate than the first, and takes 9% longer."""
    for name, top1, minutes in (("a", 70.0, 100), ("b", 72.0, 109), ("c", 74.0, 121)):
        set_minutes(create_run(name, top1, top1=top1), minutes, training_pflops=minutes)
    page = render_page()
    assert [row["top1_percent"] for row in list_plotted_values(page, "time", "line")[0]] == [72, 74]


@pytest.mark.parametrize(("pflops", "front"), [(10.0, [72]), (9.0, [70, 72])])
def test_report_pareto_front_ignores_noise_at_equal_compute(render_page, pflops, front):
    """The first run takes slightly over half as long as the second."""
    for name, top1, minutes, compute in (("a", 70.0, 101, pflops), ("b", 72.0, 200, 10.0)):
        set_minutes(create_run(name, top1, top1=top1), minutes, training_pflops=compute)
    points = list_plotted_values(render_page(), "time", "line")[0]
    assert [row["top1_percent"] for row in points] == front


def test_report_uses_the_price_that_runs_share(render_page):
    for name, price in (("a", 36.0), ("b", 36.0), ("c", 1.0)):
        config = {"launch": {"price": price}, "optimizer": {"lr": name}}
        create_run_folder(Path("runs"), name, config=config)
    assert ">cost<" not in render_page("runs")
    shared = render_page("runs/a runs/b")
    assert ">cost<" in shared
    assert shared == render_page("runs/a runs/b --price 36")


def test_report_prints_costs_in_one_format(render_page):
    for name, minutes in (("a", 0.16), ("b", 20)):
        set_minutes(create_run_folder(RUNS, name), minutes)
    assert re.findall(r">(\$[\d.]+)<", render_page("runs --price 36")) == ["$0.11", "$13.20"]


@pytest.mark.parametrize(
    ("accuracies", "epochs", "has_lines", "has_front"),
    parse_values("""
[72.0, 70.0] | [2, 4] | true | false
[70.0, 72.0] | [2, 4] | true | true
[70.0, 72.0] | [2, 2] | false | true
[72.0, 70.0] | [2, 2] | false | false
"""),
)
def test_caption_names_only_the_drawn_lines(render_page, accuracies, epochs, has_lines, has_front):
    for minutes, (top1, count) in enumerate(zip(accuracies, epochs, strict=True), 1):
        config = {"optimizer": {"lr": 0.1 if has_lines else minutes}, "max_duration": f"{count}ep"}
        more = {"top1": top1, "epochs": count, "config": config, "image_count": 5000}
        set_minutes(create_run_folder(RUNS, f"run{minutes}", **more), minutes)
    page = render_page()
    caption = re.search(r'id="time">.*?<figcaption>(.*?)</figcaption>', page)[1]
    assert ("Pareto front" in caption) == has_front
    lines = list_plotted_values(page, "time", "line")
    drawn = [
        Counter(point["series"] for point in points).most_common(1)[0][1] > 1 for points in lines
    ]
    assert (len(lines[0]) > 1, any(drawn[1:])) == (has_front, has_lines)


def test_published_results_are_plotted_only_behind_imagenet_runs(render_page):
    for name, count in (("small", 5000), ("large", 1_281_167)):
        for lr in (1, 2):
            config = {"optimizer": {"lr": lr}}
            create_run_folder(Path(name), f"a{lr}", image_count=count, config=config)
    for name, published in (("small", 0), ("large", 1)):
        points = list_plotted_values(render_page(name), "time", "point")
        assert len(points) == 1 + published
        clocks = {row["clock"] for row in points[0] if "clock" in row}
        assert clocks == ({""} if published else set())


def test_report_lines_join_durations_and_name_other_settings(render_page):
    for lr, epochs, seed in product((0.1, 0.2), (2, 4), (1, 2)):
        changes = {
            "config": {"optimizer": {"lr": lr}, "max_duration": f"{epochs}ep"},
            "image_count": 5000,
        }
        name = f"{lr}-{epochs}-{seed}-6b3f2a91"
        set_minutes(
            create_run_folder(RUNS, name, seed=seed, epochs=epochs, **changes), epochs + seed
        )
    text = render_page()
    (names,) = list_plotted_values(text, "time", "text")
    assert {row["series"] for row in names} == {"lr 0.1", "lr 0.2"}
    (points,) = list_plotted_values(text, "time", "point")
    assert [row["name"] for row in points][:2] == ["lr 0.1, 2 epochs", "lr 0.1, 4 epochs"]
    assert points[0]["seeds"] == 2
    assert points[0]["minutes"] == pytest.approx(3.5)
    curves = {row["name"] for row in read_plots(text)["course-loss"]["data"]["values"]}
    assert "0.2-4-1-6b3f2a91 (lr 0.2, 4 epochs, seed 1)" in curves
    assert len(curves) == 8


def test_report_labels_are_next_to_points_without_overlap():
    positions = {"far": (1, 60), "a": (50, 70), "b": (52, 70), "c": (50, 70.1)}
    rows = [
        {"series": name, "minutes": minutes, "top1_percent": top1}
        for name, (minutes, top1) in positions.items()
    ]
    far, *near = label_lines([[row] for row in rows], "minutes")
    assert [row["series"] for row in (far, *near)] == [*positions]
    assert len({row["dy"] for row in near}) == 3
    assert label_lines([], "minutes") == []


def test_report_out_expands_the_home_folder(run_command, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run_command("resnet-recipes report --published '--out=~/r.html'")
    assert read_plots(Path("r.html").read_text())


def test_report_of_runs_has_plots_and_escaped_names(render_page):
    bad = "</script><script>alert(1)</script>"[:60].replace("/", "-")
    create_run_folder(RUNS, bad, seed=1, top1=70.1)
    create_run_folder(RUNS, "plain", seed=2, config={"optimizer": {"lr": bad}})
    (RUNS / "plain/overrides.txt").write_text("x=</script><script>alert(2)</script>\n")
    (RUNS / "plain/command.txt").write_text("</script><script>alert(3)</script>\n")
    text = render_page("runs --price 32.77/h")
    # the accuracy would be a point, and the other quantities are constant
    assert set(read_plots(text)) == {"time", "phases", "course-loss", "course-pixels"}
    assert "<script>alert" not in text


def test_report_replaces_only_an_older_report(run_command):
    for _ in range(2):
        run_command("resnet-recipes report --published")
    Path("report.html").write_text("<html>mine")
    message = run_command("resnet-recipes report --published", 2).err
    assert "report.html already exists, and nothing is overwritten" in message
    Path("mine.html").write_text("<html>mine")
    message = run_command("resnet-recipes report --published --out mine.html", 2).err
    assert "already exists, and nothing is overwritten" in message
    assert "--out mine2.html" in message
    assert (
        "--png pictures"
        in run_command("resnet-recipes report --published --png pictures.png", 2).err
    )
    assert Path("mine.html").read_text() == "<html>mine"


def test_report_of_published_results_needs_no_runs(render_page, run_command):
    text = render_page("--published")
    assert set(read_plots(text)) == {"time"}
    (points,) = list_plotted_values(text, "time", "point")
    assert {"hot", "mild"} <= {row["recipe"] for row in points}
    assert "Filled points" not in text
    Path("none").mkdir()
    assert (
        "none is not a run folder"
        in run_command("resnet-recipes report none --out none.html", 3).err
    )
    assert not Path("none.html").exists()


def test_report_head_prints_shared_settings_once(render_page):
    create_three_runs(training_pflops=0.0018)
    text = render_page("runs --price 36")
    best = "Best finished run: b (lr 72.0), 72.00% top-1 in 20:00 of training, $13.20 in total."
    assert best in text
    assert "<h1>3 runs in " in text
    assert "Next: resnet-recipes predict runs/b IMAGES" in text
    assert text.count(">0.0018<") == 3
    assert "Data: 5,000 training images." in text
    assert "Accuracies on different images" not in text
    assert "All published results" not in text, "they are for ImageNet"
    assert "All have recipe=mild  bs=64" in text
    assert text.count("bs=64") == 1
    assert "Pareto front of the means" not in text, "there is one run of each"


def test_report_groups_fractions_and_folds_of_data_set(render_page):
    for share in (0.1, 0.3, 1.0):
        settings = {"data": {"root": "/data/pets", "share": share}, "max_duration": "400ba"}
        top1 = 60 + 20 * share
        images = int(1000 * share)
        set_minutes(
            create_run_folder(RUNS, f"s{share}", image_count=images, top1=top1, config=settings), 5
        )
        write_facts(RUNS / f"s{share}", images, 400, "same")
    text = render_page()
    assert "Data: 1,000 training images, 400 validation images." in text
    assert "Accuracies on different images" not in text
    assert "Twice as many would gain about" in text
    assert "images" in read_plots(text)
    shutil.rmtree(RUNS / "s0.3")
    assert "images" in read_plots(render_page())
    for part in (1, 2):
        settings = {"data": {"root": "/data/cats", "fold": f"{part}/2"}}
        set_minutes(create_run_folder(RUNS, f"fold{part}", config=settings, top1=70 + part), 5)
        write_facts(RUNS / f"fold{part}", 99 + part, 101, f"{part}")
    text = render_page()
    assert "<h2>2 datasets" in text
    assert re.findall(r"Best finished run: s1.0 \(([\w .]+)\),", text) == ["data.share 1.0"]
    # folds are not compared
    assert ">mild, 71.50% top-1 (mean of 2 runs)" in text
    assert sum(name.endswith("images") for name in read_plots(text)) == 1  # not of folds


def test_report_groups_best_runs_and_plots_by_dataset(render_page):
    for name, images, top1 in (("a", 5000, 60), ("b", 5000, 50), ("c", 6000, 90), ("d", 6000, 80)):
        set_minutes(
            create_run_folder(RUNS, name, image_count=images, top1=top1, recipe=f"of_{name}"), top1
        )
    text = render_page()
    assert "Accuracies on different images cannot be compared" in text
    assert re.findall(r"Best finished run: \w \((\w+)\)", text) == ["of_a", "of_c"]
    for figure, series in (("data1-time", {"of_a", "of_b"}), ("data2-time", {"of_c", "of_d"})):
        assert {row["series"] for row in list_plotted_values(text, figure, "point")[0]} == series


def test_report_uses_the_faster_of_equally_accurate_runs(render_page):
    for name, minutes in (("early", 9), ("late", 3)):
        set_minutes(create_run(name, minutes), minutes)
    text = render_page()
    assert "Best finished run: late (lr 3), 70.00%" in text
    assert ">Equally accurate: early (lr 9).<" in text
    assert "Next: resnet-recipes predict runs/late IMAGES" in text
    assert "2 finished" not in text


def test_report_of_one_run_has_no_plot(render_page):
    folder = create_run("mine")
    text = render_page(folder)
    assert "70.00% top-1" in text
    assert "Settings: recipe=mild  seed=1" in text
    assert f"Next: resnet-recipes predict {folder} IMAGES" in text
    assert "<h1>Run mine</h1>" in text
    assert "time" not in read_plots(text)
    stopped = create_run("stopped", state="stopped")
    text = render_page(stopped)
    assert f"Next: resnet-train --resume {stopped} (stopped at epoch 4.00 of 4)" in text


def test_report_advises_resuming_runs_and_judges_best_two(render_page):
    for name, top1, lr in (("a", 90.0, 1), ("b", 80.0, 2)):
        folder = create_run(name, lr, top1=top1)
        write_facts(folder, 5000, 100)
        flags = "".join(str(int(i < top1)) for i in range(100))
        (folder / "hits.json").write_text(json.dumps({"digest": "same", "flags": flags}))
    for i in range(6):
        write_facts(create_run(f"s{i}", state="stopped", epochs=8), 5000, 100)
    text = render_page()
    best, second = "a (lr 1, 4 epochs)", "b (lr 2, 4 epochs)"
    assert f"Best finished run: {best}, 90.00% top-1 (1 run, 95% interval 82.6 to 94.5%)" in text
    assert f"{best} vs. {second}, the same 100 images: +10.00 points, 95% interval +" in text
    assert text.count("--resume runs/s") == 4
    points = list_plotted_values(text, "time", "rule")[0]
    assert [points[0]["low"], points[0]["high"]] == pytest.approx([82.56, 94.48], abs=0.005)
    assert "Next: resnet-train --resume runs/s0 (stopped at epoch 4.00 of 8)" in text
    assert "2 more runs can be resumed: resnet-recipes runs" in text


def test_report_joins_runs_on_the_same_images(render_page):
    for root in ("/data/pets", "/copy/animals"):
        folder = create_run_folder(RUNS, Path(root).name, config={"data": {"root": root}})
        write_facts(folder, 90, 9, "same")
    assert "<h2>2 datasets" not in render_page()


def test_report_predicts_with_the_best_settings(render_page):
    """The most accurate run does not have the best settings."""
    for name, lr, top1 in (("a", 1, 71.0), ("b", 1, 72.0), ("c", 2, 60.0), ("d", 2, 73.0)):
        create_run(name, lr, top1=top1)
    text = render_page()
    lead = "Best settings by mean top-1 over seeds: "
    assert f"{lead}lr 1, 71.50% top-1 (mean of 2 runs)" in text
    assert "Next: resnet-recipes predict runs/b IMAGES" in text
    create_run("e", 3, top1=72.5)
    text = render_page()
    assert f"{lead}e (lr 3), 72.50% top-1" in text, "there is one run, and the best run is d"
    assert "Next: resnet-recipes predict runs/e IMAGES" in text


def test_report_caption_states_rule_of_pareto_front(render_page):
    for name, lr, minutes in (("a", 1, 10), ("b", 1, 10), ("c", 2, 30)):
        set_minutes(create_run(name, lr, top1=70 + lr), minutes)
    assert "over 10% longer, and with equal PFLOPs at least twice as long." in render_page()


def test_report_names_damaged_run_and_shows_others(render_page):
    create_run("whole")
    (create_run_folder(RUNS, "damaged") / SUMMARY).write_text("[")
    text = render_page()
    assert "<li>damaged: " in text
    assert "70.00% top-1" in text


def test_report_of_damaged_runs_keeps_older_page(render_page, run_command):
    (create_run_folder(RUNS, "damaged") / SUMMARY).write_text("[")
    older = render_page("--published")
    error = run_command("resnet-recipes report runs --out r.html", 3).err
    assert "runs/damaged: summary.json cannot be read" in error
    assert Path("r.html").read_text() == older


def test_report_png_writes_plots_into_a_new_folder(render_page, run_command):
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    create_run_folder(RUNS, "a")
    text = render_page("runs --png png")
    assert Path("png/time.png").read_bytes().startswith(b"\x89PNG")
    assert {path.stem for path in Path("png").iterdir()} == set(read_plots(text))
    again = run_command("resnet-recipes report runs --out r.html --png png").err
    assert f"saved {len(read_plots(text))} plots in png\nsaved r.html\n" in again
    message = run_command("resnet-recipes report runs --out other.html --png png", 2).err
    assert "--png png already exists" in message

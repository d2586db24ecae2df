"""`resnet-recipes estimate` without a recipe, and a budget that selects a recipe."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from resnet_recipes import cuda, data
from resnet_recipes.planning.plan import IMAGENET_FACTS
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.recipe.library import Library
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_run_folder

ON_CPU = "launch.device=cpu gpus=1"
ON_OWN_IMAGES = f"data=images bs=8 batch.bn_size=8 {ON_CPU}"
ON_IMAGENET = f"data=/data/imagenet {ON_CPU}"


@pytest.fixture(autouse=True)
def _list_few_recipes(monkeypatch):
    """Use fewer recipes, because each takes a while."""
    names = ["dawnbench", "ffcv_rn50", "finetune", "hot", "mild", "small"]
    monkeypatch.setattr(Library, "list_names", lambda _: names)


@pytest.fixture
def imagenet(monkeypatch):
    """Report a million images that do not exist."""
    monkeypatch.setattr(data, "survey_images", lambda *_, **__: IMAGENET_FACTS)


@pytest.fixture
def list_candidates(run_json: Callable[..., Any]) -> Callable[[str], list[dict]]:
    return lambda arguments: run_json(f"resnet-recipes estimate {arguments}")


def test_candidates_list_published_durations_and_pareto_front(imagenet, list_candidates):
    rows = list_candidates(f"{ON_IMAGENET} --price 2")
    candidates = {(row["recipe"], row["epochs"]): row for row in rows}
    assert candidates["mild", 67]["top1_percent"] == 78.1
    assert candidates["mild", 67]["accuracy"] == "published"
    assert candidates["mild", 36]["accuracy"].startswith("interpolated")
    assert candidates["ffcv_rn50", 16]["top1_percent"] == 73.76
    assert candidates["mild", 32]["cost"] == pytest.approx(candidates["mild", 32]["minutes"] / 30)
    optimal = [row for row in rows if row["front"]]
    assert optimal
    for mine in optimal:
        for row in rows:
            is_faster = row["minutes"] < mine["minutes"]
            assert not (is_faster and (row["top1_percent"] or 0) >= mine["top1_percent"])


def test_candidates_ignore_a_budget_in_a_path(imagenet, list_candidates):
    tables = [list_candidates(f"data=/{name} {ON_CPU}") for name in ("imagenet", "budget=1h")]
    first, second = ([(row["recipe"], row["epochs"]) for row in rows] for rows in tables)
    assert first == second


def create_own_run(name: str, epochs: float, top1: float, command: str, digest: str) -> None:
    """Create the folder of a finished run with the recipe and settings of a command."""
    recipe, *changes = command.split()
    run = create_run_folder(Path("runs"), name, recipe=recipe, top1=top1, epochs=epochs)
    (run / "config.yaml").write_text(freeze(compose(recipe, changes).recipe))
    (run / "data.json").write_text(json.dumps({"train_digest": digest}))


def test_own_runs_replace_published_accuracy(imagenet, list_candidates):
    create_own_run("a", 67, 77.0, f"mild {ON_IMAGENET}", IMAGENET_FACTS.train_digest)
    (row,) = [
        row
        for row in list_candidates(ON_IMAGENET)
        if (row["recipe"], row["epochs"]) == ("mild", 67)
    ]
    assert (row["top1_percent"], row["accuracy"]) == (77.0, "1 own run")
    recipes = {row["recipe"] for row in list_candidates(f"{ON_IMAGENET} --reach 78.1")}
    assert "hot" in recipes
    assert "mild" not in recipes  # 78.1% was published for the 67 epochs of the own run


def test_candidates_within_time_list_most_accurate_first(imagenet, list_candidates):
    hours = 3000
    rows = list_candidates(f"{ON_IMAGENET} --within {hours}h")
    assert all(row["most_minutes"] <= 60 * hours for row in rows)
    accuracies = [row["top1_percent"] for row in rows if row["top1_percent"]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert rows[0]["top1_percent"]
    assert f"budget={hours}h" in rows[0]["command"]


def test_candidates_for_accuracy_list_fastest_first(imagenet, list_candidates, run_command):
    rows = list_candidates(f"{ON_IMAGENET} --reach 78")
    assert all(row["top1_percent"] >= 78 for row in rows)
    assert {"mild", "ffcv_rn50", "hot"} <= {row["recipe"] for row in rows}
    minutes = [row["minutes"] for row in rows]
    assert minutes == sorted(minutes)
    out = run_command(f"resnet-recipes estimate {ON_IMAGENET} --reach 99", 3).out
    assert "No recipe is known to reach 99% on these images with these settings.\n" in out
    assert "\nAccuracies of your runs: resnet-recipes runs --sort top1\n" in out


@pytest.fixture
def small_images(tmp_path):
    """A folder of 32 px images, in an empty working directory."""
    return create_random_images(tmp_path / "images")


def test_candidates_for_other_images_use_only_own_runs(small_images, list_candidates):
    rows = list_candidates(ON_OWN_IMAGES)
    assert {"mild", "small"} <= {row["recipe"] for row in rows}
    assert not any(row["top1_percent"] or row["front"] for row in rows)
    (digest,) = {data.survey_images(data.DataConfig(root=str(small_images))).train_digest}
    for name, top1, changes in (
        ("a", 50.0, ""),
        ("b", 60.0, "data.val_share=0.1 data.workers=2 seed=3"),
        ("c", 90.0, "lr=9"),
    ):
        create_own_run(name, 7, top1, f"small {ON_OWN_IMAGES} epochs=7 {changes}", digest)
    create_own_run("d", 7, 90.0, f"small {ON_OWN_IMAGES} epochs=7", "digest of other images")
    candidates = {(row["recipe"], row["epochs"]): row for row in list_candidates(ON_OWN_IMAGES)}
    assert candidates["small", 7]["top1_percent"] == 55.0
    assert candidates["small", 7]["accuracy"] == "2 own runs"
    candidates = {
        row["epochs"]: row
        for row in list_candidates(f"{ON_OWN_IMAGES} lr=9")
        if row["recipe"] == "small"
    }
    assert candidates[7]["top1_percent"] == 90.0


def test_candidates_keep_the_steps_of_a_recipe(
    small_images, run_command, list_candidates, monkeypatch
):
    """400 steps are 133.33 epochs of ten images, with three steps each."""
    monkeypatch.setattr(Library, "list_names", lambda _: ["finetune"])
    (digest,) = {data.survey_images(data.DataConfig(root=str(small_images))).train_digest}
    arguments = f"data=images bs=3 batch.bn_size=3 {ON_CPU}"
    create_own_run("a", 400 / 3, 50.0, f"finetune {arguments}", digest)
    (row,) = list_candidates(arguments)
    assert (row["epochs"], row["accuracy"]) == (400 / 3, "1 own run")
    assert row["command"].endswith(" epochs=400ba")
    assert " 400 steps " in run_command(f"resnet-recipes estimate {arguments}").out


def test_budget_without_recipe_explains_chosen_recipe(small_images, run_command):
    out, err = run_command(f"resnet-train {ON_OWN_IMAGES} budget=5m --dry-run")
    assert "recipe=small: best for images of " in err
    assert "; next: finetune, mild\n" in err
    assert "\n  recipe     small, packaged" in out


def test_candidates_skip_a_run_with_damaged_facts(small_images, list_candidates):
    run = create_run_folder(Path("runs"), "a")
    (run / "data.json").write_text("{")
    assert list_candidates(ON_OWN_IMAGES)


def test_budget_too_small_reports_the_minimum(small_images, run_command):
    message = run_command(f"resnet-train {ON_OWN_IMAGES} budget=0.01s --dry-run", 2).err
    assert "budget=0.01s is too small: the shortest sensible run is epochs=" in message
    assert " problems" not in message


def test_candidates_within_too_little_suggest_the_flag(small_images, run_command):
    command = f"resnet-recipes estimate mild {ON_OWN_IMAGES} --within"
    message = run_command(f"{command} 0.01s", 2).err
    assert "error: --within 0.01s is too small: the shortest sensible run is epochs=" in message
    (fix,) = re.findall("use:   --within (.*)", message)
    run_command(f"{command} {fix} --csv candidates.csv")


def test_wrong_setting_is_named_despite_a_damaged_recipe(small_images, recipes, run_command):
    (recipes / "a.yaml").write_text("defaults: [mild")
    command = f"resnet-recipes estimate data={small_images} budget=2h lrr=3"
    assert "unknown setting lrr=3" in run_command(command, 2).err


def test_candidates_without_data_are_for_imagenet(recipes, run_command):
    text = (Path(__file__).parents[2] / "recipes/small.yaml").read_text()
    (recipes / "small.yaml").write_text(text.replace("\ndata:\n", "\ndata:\n  root: images\n"))
    out = run_command("resnet-recipes estimate --reach 78 gpus=8").out
    assert "resnet-recipes plan mild gpus=8 epochs=63\n" in out
    assert "data= is missing, so this table assumes ImageNet-1k.\n" in out
    assert "skipped: small: data has other images\n" in out
    assert "not measured" not in out


def test_skipped_recipes_name_the_flag_that_was_typed(small_images, run_command):
    """Some recipes train for one epoch in five seconds, others do not."""
    out = run_command(f"resnet-recipes estimate {ON_OWN_IMAGES} --within 5s").out
    text = " ".join(out.split())
    assert re.search(r"skipped: [a-z0-9_, ]+: --within is too short", text)
    assert "budget is" not in text


def test_skipped_recipes_with_one_problem_share_a_line(tmp_path, run_command):
    """Mild uses bs=2048 and FFCV's recipe bs=4096, more than these images; finetune uses bs=16."""
    create_random_images(tmp_path / "images", train=2)
    out = run_command(f"resnet-recipes estimate data=images {ON_CPU}").out
    (names,) = re.findall(
        "skipped: ([a-z0-9_, ]+): bs in the recipe is more than", " ".join(out.split())
    )
    assert {"mild", "ffcv_rn50"} <= {*names.split(", ")}


@pytest.fixture
def large_images(small_images, monkeypatch, tmp_path):
    """The same folder with larger images, on a machine without pretrained weights."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "none"))
    for image in small_images.rglob("*.*"):
        if image.suffix in (".png", ".jpg", ".jpeg"):
            Image.new("RGB", (200, 200)).save(image)
    return small_images


def test_budget_for_photographs_suggests_fine_tuning(large_images, run_command):
    message = run_command(f"resnet-train {ON_OWN_IMAGES} budget=50m", 3).err
    assert "recipe=finetune: best here because it starts from weights" in message
    assert "next: mild" in message
    assert "model.weights=torchvision is not on this machine" in message
    assert "torchvision.models.resnet50(weights=" in message


def test_budget_on_gpu_chooses_fine_tuning_without_prediction(
    large_images, run_command, monkeypatch
):
    gpus = cuda.VisibleGpus(1, "NVIDIA A100-SXM4-80GB", "bf16", 85_000_000_000)
    monkeypatch.setattr(cuda, "find_gpus", lambda: gpus)
    monkeypatch.setattr(Library, "list_names", lambda _: ["finetune", "mild"])
    arguments = "data=images bs=8 batch.bn_size=8"
    table = run_command(f"resnet-recipes estimate {arguments} --within 5s").out
    assert "resnet-train mild" in table
    assert not {"TOP-1", "ACCURACY"} & {*table.split()}
    assert "\ntime unknown: finetune" in table  # predictions exist only if all layers are trained
    message = run_command(f"resnet-train {arguments} budget=5s --dry-run", 3).err
    assert message.startswith("recipe=finetune: best for these images")
    assert "budget=5s: the time is unknown" in message


def test_candidates_omit_small_image_recipes_for_photographs(large_images, run_command):
    output = " ".join(run_command(f"resnet-recipes estimate {ON_OWN_IMAGES}").out.split())
    assert "small: data.train_size is for smaller images than these, of 200 px" in output
    assert "finetune: model.weights=torchvision is not on this machine: " in output
    assert " try: python3 -c" in output
    assert output.index("finetune: model.weights=") < output.index("Accuracy on these images")


def test_candidates_print_missing_weights_of_several_recipes_once(
    large_images, recipes, run_command, monkeypatch
):
    (recipes / "mine.yaml").write_text("defaults: [finetune]\n")
    monkeypatch.setattr(Library, "list_names", lambda _: ["finetune", "mine"])
    output = " ".join(run_command(f"resnet-recipes estimate {ON_OWN_IMAGES}").out.split())
    assert "finetune, mine: model.weights=torchvision is not on this machine" in output
    assert output.count(" try: python3 -c") == 1


def test_candidates_start_with_the_recipe_for_the_images(small_images, run_command):
    out = run_command(f"resnet-recipes estimate {ON_OWN_IMAGES}").out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["small", "finetune", "mild"]
    assert "\nsmall is best for images of 40 px.\n" in out


def test_unreached_accuracy_suggests_the_recipe_for_the_images(small_images, run_command):
    estimate = f"resnet-recipes estimate {ON_OWN_IMAGES} --reach 76"
    out = run_command(estimate, 3).out
    command = f"resnet-train small {ON_OWN_IMAGES} stop_at_top1=76"
    assert f"\nsmall is best for images of 40 px:\n{command}\n" in out
    out = run_command(f"{estimate} methods.blurpool.min_channels=2000", 3).out
    assert "\nskipped: small: " in out
    assert "stop_at_top1" not in out


def test_wrong_estimate_does_not_report_missing_weights(large_images, run_command):
    err = run_command(f"resnet-recipes estimate finetune {ON_OWN_IMAGES} bs=8 --cost 3", 2).err
    assert err.startswith("error: unknown flag --cost 3; did you mean --price 3?\n")


def test_candidates_report_a_missing_weights_file(small_images, recipes, run_command, monkeypatch):
    monkeypatch.setattr(Library, "list_names", lambda _: ["a", "small"])
    for weights, shown in (("/none.pt", "/none.pt"), (f"{Path.cwd()}/none.pt", "none.pt")):
        (recipes / "a.yaml").write_text(f"defaults: [small]\nmodel: {{weights: {weights}}}\n")
        out = run_command(f"resnet-recipes estimate {ON_OWN_IMAGES}").out
        assert f"\na: model.weights={shown} does not exist\n" in out


@pytest.mark.parametrize(
    ("side", "train_size", "is_skipped"), [(96, 32, False), (97, 96, True), (97, 97, False)]
)
def test_candidates_omit_recipes_up_to_96_pixels(
    small_images, list_candidates, side, train_size, is_skipped
):
    for image in small_images.rglob("*.jpg"):
        Image.new("RGB", (side, side)).save(image)
    rows = list_candidates(f"{ON_OWN_IMAGES} data.train_size={train_size}")
    assert ("small" not in {row["recipe"] for row in rows}) == is_skipped


@pytest.mark.parametrize("names", [["ffcv_rn50", "finetune", "mild"], ["ffcv_rn50", "finetune"]])
def test_budget_chooses_second_recipe_without_reason_of_first(
    large_images, run_command, monkeypatch, names
):
    monkeypatch.setattr(Library, "list_names", lambda _: names)
    arguments = f"{ON_OWN_IMAGES} optimizer.momentum=0.9"  # AdamW of finetune has no momentum
    message = run_command(f"resnet-train {arguments} budget=2h --dry-run").err
    assert re.search(r"^recipe=mild(; next: ffcv_rn50)?$", message, re.MULTILINE)
    named = run_command(f"resnet-recipes estimate mild {ON_OWN_IMAGES} --within 2h").out
    assert "resnet-train mild" in named
    assert "starts from weights" not in named


@pytest.mark.parametrize("has_val", [True, False])
@pytest.mark.parametrize(("side", "name"), [(32, "small"), (97, "finetune")])
def test_missing_recipe_is_suggested_from_the_images(
    small_images, run_command, has_val, side, name
):
    for image in [*small_images.rglob("*.jpg")]:
        Image.new("RGB", (side, side)).save(image)
        shutil.copy(image, image.with_name("two.jpg"))
    if not has_val:
        shutil.rmtree(small_images / "val")
    message = run_command("resnet-train data=images", 2).err
    fix = f"try:   resnet-train {name} data=images" if has_val else f"use:   recipe={name}"
    assert f"recipe is missing\n      {fix}\n      hint:" in message
    assert re.search(f"images (of|is about) {side} px", message)
    assert ("data.val_share=0.1" in message) == (not has_val)


def test_budget_on_imagenet_chooses_by_published_accuracy(imagenet, run_folders, run_command):
    message = run_command(f"resnet-train {ON_IMAGENET} budget=3000h --dry-run").err
    assert "the most accurate according to published results; next: " in message
    assert "recipe is missing" in run_command("resnet-train data=/data/imagenet --dry-run", 2).err


@pytest.mark.parametrize("flag", ["", "--reach 76"])
def test_only_a_budget_names_the_most_accurate_recipe(imagenet, run_command, flag):
    out = run_command(f"resnet-recipes estimate {ON_IMAGENET} {flag}").out
    assert "TOP-1" in out
    assert "most accurate according to" not in out

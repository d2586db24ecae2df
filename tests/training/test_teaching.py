"""Training with a teacher's stored outputs against training with the teacher."""

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.stored import begin, header, read
from resnet_recipes.methods import ORDER, Distill, MixUp
from resnet_recipes.network import about
from resnet_recipes.network.teacher import taught
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.planning.stored import cycled, made_for
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import capture, digest, restore
from resnet_recipes.training.teaching import store

CLASSES, STEPS = 3, 6
SIZES = {"stairs": [["0ep", 0.5], ["1ep", 1.0]], "delay": "0.5dur"}
RESIZED = {"progressive_resizing": SIZES, "label_smoothing": {"smoothing": 0.1}}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("taught"), np.random.default_rng(0)
    for split, count in (("train", 9), ("val", 1)):
        for name in range(CLASSES):
            (root / split / f"class{name}").mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 44, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / f"class{name}" / f"{number}.png")
    return root


@pytest.fixture
def settings(images: Path, make_run: Callable, tmp_path: Path) -> Callable[..., dict]:
    """Return a function that makes the settings of a run, with a teacher or a file's outputs."""
    path = tmp_path / "teacher.safetensors"
    config = {"root": str(images), "backend": "torchvision", "workers": 0}
    run = make_run(seed=5, data=config, batch={"global_size": 8, "bn_size": 8})
    write_weights(run.model, path, about.of(run.plan.recipe, run.plan.facts.classes, CLASSES))

    def make(labels: Path | None = None, seed: int = 3, **methods: dict) -> dict:
        source = {"labels": str(labels)} if labels else {"teacher": str(path)}
        return {
            "seed": seed,
            "data": config | {"seed": 3},
            "batch": {"global_size": 8, "bn_size": 8},
            "methods": {**methods, "distill": {"temperature": 2.0, **source}},
        }

    return make


def write(
    plan: Plan, path: Path, kept: int = CLASSES, ranks: int = 1, cycle: int = 0, stop: int = 999
) -> Path:
    """Write a file of a plan's teacher, as `resnet-recipes teach` does, but for `stop` batches."""
    made = {"teacher": plan.teachers[0].text, **made_for(plan, cycle)}
    plan = cycled(plan, cycle)
    shape = len(plan.sizes), plan.recipe.data.repeats, plan.facts.train_examples, kept
    begin(path, *header(made, shape, CLASSES)).close()
    outputs, progress = read(path, "r+")[0], Mock()
    whole = [
        store(
            plan,
            Rank(number, ranks, torch.device("cpu")),
            outputs,
            progress,
            lambda: progress.call_count >= stop,
        )
        for number in reversed(range(ranks))  # the first one records what is whole
    ]
    done = [call.args for call in progress.call_args_list]
    assert all(0 < count <= total for count, total in done)
    assert done[-1:] == [(done[-1][1],) * 2] or stop < 999
    assert whole == [stop == 999] * ranks
    return path


def planned(recipe: Callable, ranks: int = 1, **settings: object) -> Plan:
    made = recipe(**settings)
    return taught(make_plan(made, data.measure(made.data), ranks))


def trained(run: Run, first: int = 0, stop_at: int | None = None) -> torch.Tensor:
    reporter = Mock(spec=RunReporter)
    reporter.wants_to_stop.side_effect = lambda: reporter.step.call_count + 1 + first == stop_at
    train(run, reporter, first)
    return digest(run.model)


EXACT = {
    "1 rank": (1, {}, RESIZED),
    "2 ranks": (2, {}, RESIZED),
    "the loader resizes": (1, {}, {"progressive_resizing": SIZES | {"at": "loader"}}),
    "repeats": (2, {"repeats": 3}, {"randaugment": {}}),
    "mixup": (1, {}, {"mixup": {}}),
    "cutmix": (2, {"repeats": 2}, {"cutmix": {}}),
    "both": (1, {}, RESIZED | {"mixup_or_cutmix": {}}),
}


@pytest.mark.parametrize(("ranks", "data_settings", "methods"), EXACT.values(), ids=EXACT)
def test_a_run_with_all_outputs_is_the_run_with_the_teacher_bit_by_bit(
    settings, make_run, recipe, tmp_path, monkeypatch, ranks, data_settings, methods
):
    def words(path: Path | None = None) -> dict:
        made = settings(path, **methods)
        made["data"] |= data_settings
        return made

    # a teacher at every step that sees images before they are mixed, as `teach` does
    others = [method for method in ORDER if method is not Distill]
    others.insert(others.index(MixUp), Distill)
    monkeypatch.setattr("resnet_recipes.methods.stack.ORDER", others)
    plan = planned(recipe, ranks, **words())
    assert plan.sizes == ((16, 32) if "progressive_resizing" in methods else (32, 32))
    path = write(plan, tmp_path / "all.safetensors", ranks=ranks)
    learned = trained(make_run(**words(path)))
    assert torch.equal(learned, trained(make_run(**words())))
    half, rest = (make_run(**words(path)) for _ in range(2))
    trained(half, stop_at=STEPS // 2 + 1)
    restore(rest, capture(half, STEPS // 2 + 1))
    assert torch.equal(trained(rest, first=STEPS // 2 + 1), learned)


def test_an_image_that_is_left_over_has_the_bits_that_it_has_among_others(
    settings, make_run, recipe, tmp_path
):
    batch = {"batch": {"global_size": 13, "bn_size": 13}}  # of 27 images
    path = write(planned(recipe, **settings() | batch), tmp_path / "all.safetensors")
    learned = trained(make_run(**settings(path) | batch))
    assert torch.equal(learned, trained(make_run(**settings() | batch)))


def test_no_rank_ends_before_all_is_written(settings, recipe, tmp_path, monkeypatch):
    path, missing = tmp_path / "all.safetensors", []
    meeting = "resnet_recipes.training.teaching.meet"
    monkeypatch.setattr(meeting, lambda: missing.append(read(path)[0].missing()))
    write(planned(recipe, **settings()), path)
    assert missing == [[0, 1], []]


def test_one_file_serves_runs_of_other_seeds_and_batches(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "all.safetensors")
    other = settings(path, seed=7) | {"batch": {"global_size": 4, "bn_size": 4}}
    same = settings(seed=7) | {"batch": {"global_size": 4, "bn_size": 4}}
    assert torch.equal(trained(make_run(**other)), trained(make_run(**same)))


def test_two_outputs_of_three_change_the_loss_little(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    raw = next(iter(make_run(**settings(path)).train_data.batches()))
    whole = write(planned(recipe, **settings()), tmp_path / "all.safetensors")
    exact = next(iter(make_run(**settings(whole)).train_data.batches()))
    assert torch.equal(raw.pixels, exact.pixels)
    assert raw.taught.sum(1).tolist() == pytest.approx([1] * 8, abs=1e-5)
    # with two of three, the third is what is left: only float16 differs
    torch.testing.assert_close(raw.taught, exact.taught, rtol=0, atol=2e-3)
    assert not torch.equal(raw.taught, exact.taught)


def test_epochs_that_are_repeated_give_the_crops_again(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings(**RESIZED)), tmp_path / "one.safetensors", 2, cycle=1)
    run = make_run(**settings(path, **RESIZED))
    batches, seen = run.train_data.batches(), []
    for _ in range(STEPS):
        raw = next(batches)
        seen += zip(raw.labels.tolist(), raw.pixels.clone(), raw.taught.clone(), strict=True)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    again = [
        (one[2], other[2]) for one in first for other in second if torch.equal(one[1], other[1])
    ]
    assert len(again) > len(first) // 2
    assert all(torch.equal(*pair) for pair in again)


def refusal(recipe: Callable, error: type[Exception], **settings: object) -> str:
    with pytest.raises(error) as caught:
        planned(recipe, **settings)
    return " ".join(f"{one.key} {one.value} {one.rule} {one.fix}" for one in caught.value.problems)


def test_a_run_of_other_crops_is_refused_with_both_values(settings, recipe, tmp_path):
    path = write(planned(recipe, **settings(**RESIZED)), tmp_path / "two.safetensors", 2)
    other = settings(path, randaugment={}, colout={})
    other["data"] |= {"crop_scale": [0.5, 1.0], "seed": 4}
    said = refusal(recipe, RecipeError, max_duration="3ep", **other)
    for text in (
        "data.crop_scale [0.5,1.0] is [0.08,1.0] in",
        "data.crop_scale='[0.08,1.0]'",
        "data.seed 4 is 3 in",
        "epochs 3 is 2 in",
        "methods.randaugment {depth:1,severity:10.0,",
        "is off in",
        "'~methods.randaugment'",
        "methods.colout None draws anew for each batch",
        "'~methods.colout'",
        "methods.progressive_resizing None is {",
    ):
        assert text in said, said


def test_images_of_the_same_size_that_are_made_otherwise_are_others(settings, recipe, tmp_path):
    path = write(planned(recipe, **settings(**RESIZED)), tmp_path / "two.safetensors", 2)
    other = RESIZED | {"progressive_resizing": SIZES | {"at": "loader"}}
    said = refusal(recipe, RecipeError, **settings(path, **other))
    assert "at:loader" in said
    assert "at:device" in said


def test_all_that_decides_crops_is_compared(settings, recipe):
    made = made_for(planned(recipe, **settings()), 0)
    for setting in fields(TrainCrop):
        assert made.keys() & {f"data.{setting.name}", f"data.crop_{setting.name}"}


def described(path: Path, **changes: str) -> None:
    """Change the description of a file, and nothing else."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, metadata | changes)


def tensors(path: Path, **changes: torch.Tensor) -> None:
    """Change tensors of a file, and nothing else."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    save_file(load_file(path) | changes, path, metadata)


DAMAGE = {
    "short": (lambda path: path.write_bytes(path.read_bytes()[:-8]), "damaged, or cut short"),
    "long": (lambda path: path.write_bytes(path.read_bytes() + b"more"), "damaged, or cut short"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04K\x01."), "no .safetensors file"),
    "limit": (lambda path: path.write_bytes(b"\xff" * 9), "no .safetensors file"),
    "other": (lambda path: save_file({"rows": torch.zeros(2, 1, 9)}, path), "was not written by"),
    "newer": (lambda path: described(path, **{"data.new": "1"}), "or by another version of it"),
    "older": (
        lambda path: save_file(load_file(path), path, {"teacher": "a"}),
        "was not written by",
    ),
    "no metadata": (lambda path: save_file(load_file(path), path), "was not written by"),
    "numbers": (lambda path: tensors(path, values=torch.zeros(2).bfloat16()), "not written by"),
    "no epochs": (lambda path: tensors(path, sha256=torch.tensor(0)), "to these images"),
    "bit": (lambda path: flip(path, -3), "was changed after it was written"),
    "header": (lambda path: flip(path, 9), "no .safetensors file"),
    "fifo": (lambda path: path.unlink() or os.mkfifo(path), "Not a regular file"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_ends_before_the_first_step(settings, recipe, tmp_path, damage, said):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    damage(path)
    found = refusal(recipe, NotReadyError, **settings(path))
    assert said in found
    assert "write it:  resnet-recipes teach NAME" in found


def test_a_name_without_a_file_is_answered_with_its_setting(settings, recipe, tmp_path):
    found = refusal(recipe, NotReadyError, **settings(tmp_path / "nix.safetensors"))
    assert "methods.distill.labels" in found
    assert "No such file or directory" in found


def test_other_programs_can_read_the_file(settings, recipe, tmp_path):
    found = load_file(write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2))
    assert found["values"].shape == found["classes"].shape == (2, 1, 27, 2)
    assert found["values"].dtype == torch.float16
    assert found["classes"].max() == CLASSES - 1


def test_a_file_from_elsewhere_puts_no_words_into_the_users_shell(settings, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    described(path, **{"data.seed": "$(reboot)", "data.flip": "0"})
    with pytest.raises(RecipeError) as caught:
        planned(recipe, **settings(path))
    fixes = {problem.key: problem.fix for problem in caught.value.problems}
    assert fixes == {"data.seed": "data.seed='$(reboot)'", "data.flip": "data.flip=0"}
    described(path, **{"$(reboot)": "1"})
    assert "reboot" not in refusal(recipe, NotReadyError, **settings(path))


def test_the_plan_says_how_large_stored_outputs_are_and_that_they_repeat(
    settings, recipe, tmp_path
):
    path = write(planned(recipe, **settings()), tmp_path / "one.safetensors", 2, cycle=1)
    (teacher,) = planned(recipe, **settings(path)).teachers
    said = r"2 of each image, \d+ bytes; crops repeat after 1 epoch,"
    assert re.search(said, teacher.text)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_file_that_was_begun_goes_on_where_it_was(settings, recipe, tmp_path):
    plan = planned(recipe, **settings())
    whole = write(plan, tmp_path / "whole.safetensors", 2)
    part = write(plan, tmp_path / "part.safetensors", 2, stop=5)  # 4 batches an epoch
    assert read(part)[0].missing() == [1]
    assert write(plan, part, 2).read_bytes() == whole.read_bytes()

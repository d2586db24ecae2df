"""Training with a teacher's stored outputs against training with the teacher."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.data.loading.stored import Writer, described, located, row_type, spread
from resnet_recipes.jobs.teach import Storing
from resnet_recipes.network import about
from resnet_recipes.network.teacher import taught
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import capture, digest, restore
from resnet_recipes.training.teaching import Teaching

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


def write(plan: Plan, path: Path, kept: int, ranks: int = 1, **how: object) -> Path:
    """Write a file of a plan's teacher, as `resnet-recipes teach` does."""
    writer = Storing(str(path), kept, **how).writer(plan)
    writer.begin()
    cpu = torch.device("cpu")
    teachers = [
        Teaching(plan, Rank(number, ranks, cpu), bool(how.get("cycle"))) for number in range(ranks)
    ]
    for epoch in range(writer.epochs):
        for teacher in teachers:
            for job, rows in teacher.rows(epoch, writer.kind):
                writer.write(epoch, int(job.copies[0]), int(job.indices[0]), rows)
        writer.finish(epoch)
    writer.publish()
    return path


def planned(recipe: Callable, ranks: int = 1, **settings: object) -> Plan:
    made = recipe(**settings)
    return taught(make_plan(made, data.measure(made.data), ranks))


def trained(run: Run, first: int = 0, stop_at: int | None = None) -> torch.Tensor:
    reporter = Mock(spec=RunReporter)
    reporter.wants_to_stop.side_effect = lambda: reporter.step.call_count + 1 + first == stop_at
    train(run, reporter, first)
    return digest(run.model)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_all_outputs_is_the_run_with_the_teacher_bit_by_bit(
    settings, make_run, recipe, tmp_path, ranks
):
    plan = planned(recipe, ranks, **settings(**RESIZED))
    assert plan.sizes == (16, 32)
    path = write(plan, tmp_path / "all.safetensors", 0, ranks)
    learned = trained(make_run(**settings(path, **RESIZED)))
    assert torch.equal(learned, trained(make_run(**settings(**RESIZED))))
    half, rest = (make_run(**settings(path, **RESIZED)) for _ in range(2))
    trained(half, stop_at=3)
    restore(rest, capture(half, 3))
    assert torch.equal(trained(rest, first=3), learned)


def test_one_file_serves_runs_of_other_seeds_and_batches(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "all.safetensors", 0)
    other = settings(path, seed=7) | {"batch": {"global_size": 4, "bn_size": 4}}
    same = settings(seed=7) | {"batch": {"global_size": 4, "bn_size": 4}}
    assert torch.equal(trained(make_run(**other)), trained(make_run(**same)))


def test_mixed_images_have_mixed_outputs(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "all.safetensors", 0)
    for mix in ("mixup", "cutmix", "mixup_or_cutmix"):
        plain, mixed = (make_run(**settings(path, **method)) for method in ({}, {mix: {}}))
        assert not torch.equal(trained(plain), trained(mixed))


def test_what_is_not_kept_is_spread_evenly():
    classes, values, found = np.array([[2, 0]]), np.log([[0.5, 0.3]]), np.empty((1, 6), np.float32)
    spread(classes, values.astype(np.float16), 1.0, found)
    whole = [0.3, 0.05, 0.5, 0.05, 0.05, 0.05]
    assert found[0].tolist() == pytest.approx(whole, abs=2e-4)
    spread(classes, values.astype(np.float16), 3.0, found)
    softened = torch.tensor(whole).log().div(3).softmax(0)
    assert found[0].tolist() == pytest.approx(softened.tolist(), abs=2e-4)


def test_two_outputs_of_three_change_the_loss_little(settings, make_run, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    raw = next(iter(make_run(**settings(path)).train_data.batches()))
    whole = write(planned(recipe, **settings()), tmp_path / "all.safetensors", 0)
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
        "data.crop_scale [0.5, 1.0] is [0.08, 1.0] in",
        "data.crop_scale='[0.08,1.0]'",
        "data.seed 4 is 3 in",
        "max_duration 3 is 2 in",
        "methods.randaugment {",
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
    assert "'at': 'loader'" in said
    assert "'at': 'device'" in said


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "was cut short"),
        (lambda path: path.write_bytes(path.read_bytes() + b"more"), "was cut short, or has more"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "not written by"),
        (lambda path: path.write_bytes(b"\xff" * 9), "not written by"),
        (lambda path: save_file({"rows": torch.zeros(2, 1, 9)}, path), "not written by"),
        (lambda path: flip(path, -3), "was changed after it was written"),
        (lambda path: flip(path, 9), "not written by"),
        (lambda path: path.unlink() or os.mkfifo(path), "Not a regular file"),
        (lambda path: path.unlink(), "does not exist"),
    ],
    ids=["short", "long", "pickle", "limit", "other", "bit", "header", "fifo", "absent"],
)
def test_a_damaged_file_ends_before_the_first_step(settings, recipe, tmp_path, damage, said):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    damage(path)
    assert said in refusal(recipe, NotReadyError, **settings(path))


def test_other_programs_can_read_the_file(settings, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    found = load_file(path)["rows"].numpy().view(row_type(located(path, described(path))))[..., 0]
    assert found.shape == (2, 1, 27)
    assert found["classes"].max() == CLASSES - 1


def described_anew(path: Path, **changes: object) -> None:
    """Change the description of a file, and nothing else."""
    content, about = path.read_bytes(), described(path)
    rows = content[8 + int.from_bytes(content[:8], "little") :]
    header = json.loads(content[8 : -len(rows)])
    header["__metadata__"]["resnet_recipes"] = json.dumps(about | changes)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + rows)


@pytest.mark.parametrize(
    "changes",
    [
        *({"kept": kept} for kept in (4, 1 << 40, -1, 0, True)),
        {"classes": 1 << 40},
        *({"shape": shape} for shape in ([1 << 60] * 3, [2.0, 1, 99], [2, 1], [], [2, 1, 98])),
        {"sha256": []},
        {"more": 1},
    ],
    ids=str,
)
def test_an_impossible_description_is_refused(tmp_path, changes):
    path = tmp_path / "two.safetensors"
    Writer(path, ABOUT).begin()
    part = path.with_name("two.safetensors.part")
    described_anew(part)
    assert described(part)
    described_anew(part, **changes)
    with pytest.raises(NotReadyError, match="not written by"):
        described(part)


def test_a_file_from_elsewhere_puts_no_words_into_the_users_shell(settings, recipe, tmp_path):
    path = write(planned(recipe, **settings()), tmp_path / "two.safetensors", 2)
    made = described(path)["made"]
    described_anew(path, made=made | {"$(reboot)": 1, "data.seed": "$(reboot)", "data.flip": 0})
    with pytest.raises(RecipeError) as caught:
        planned(recipe, **settings(path))
    fixes = {problem.key: problem.fix for problem in caught.value.problems}
    assert not any(fix.replace("'$(reboot)'", "").count("$") for fix in fixes.values())
    assert " is 0 in" in " ".join(f" {problem.rule}" for problem in caught.value.problems)


def test_the_plan_says_how_large_stored_outputs_are_and_that_they_repeat(
    settings, recipe, tmp_path
):
    path = write(planned(recipe, **settings()), tmp_path / "one.safetensors", 2, cycle=1)
    (teacher,) = planned(recipe, **settings(path)).teachers
    assert "2 of each image, 0.00 GB; crops repeat every 1 epochs" in teacher.text


ABOUT = {"teacher": "a", "classes": 3, "kept": 2, "exact": False, "shape": [2, 1, 99], "made": {}}


def test_a_writer_that_is_killed_anywhere_can_go_on(tmp_path):
    path = tmp_path / "two.safetensors"
    writer = Writer(path, ABOUT)
    assert writer.begin() == 0
    part = path.with_name("two.safetensors.part")
    os.truncate(part, part.stat().st_size - writer.bytes)  # killed while it began
    assert Writer(path, ABOUT).begin() == 0
    for epoch in range(2):
        writer.begin()
        writer.finish(epoch)
    again = Writer(path, ABOUT)  # killed before the file got its name
    assert again.begin() == 2
    again.publish()
    assert [file.name for file in path.parent.iterdir()] == ["two.safetensors"]


@pytest.mark.parametrize("planted", [os.mkfifo, os.mkdir, lambda path: os.symlink("other", path)])
def test_a_file_is_not_written_through_what_has_its_name(tmp_path, planted):
    planted(tmp_path / "two.safetensors.part")
    (tmp_path / "other").write_bytes(b"somebody's")
    with pytest.raises(NotReadyError, match="is not a regular file"):
        Writer(tmp_path / "two.safetensors", ABOUT).alone().__enter__()
    assert (tmp_path / "other").read_bytes() == b"somebody's"


def test_two_commands_do_not_write_the_same_file(tmp_path):
    first, second = (Writer(tmp_path / "new" / "two.safetensors", ABOUT) for _ in range(2))
    with first.alone():
        assert not first.begin()
        with pytest.raises(NotReadyError, match="is being written by another command"):
            second.alone().__enter__()
        first.finish(0)
    with second.alone():
        assert second.begin() == 1


def test_a_file_that_was_only_begun_still_needs_its_room(tmp_path):
    writer = Writer(tmp_path / "two.safetensors", ABOUT | {"shape": [2, 1, 1 << 20]})
    writer.begin()
    assert writer.written < writer.bytes / 100


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_outputs_of_no_class_or_no_number_are_refused(settings, recipe, tmp_path, monkeypatch):
    plan = planned(recipe, **settings())
    kept = "resnet_recipes.training.teaching.kept_rows"
    for name, value in (("classes", CLASSES), ("values", math.nan)):

        def wrong(logits: torch.Tensor, kind: np.dtype, name=name, value=value) -> np.ndarray:
            rows = np.zeros(len(logits), kind)
            rows[name] = value
            return rows

        monkeypatch.setattr(kept, wrong)
        path = write(plan, tmp_path / f"{name}.safetensors", 2)
        assert "not finite numbers, or of no class" in refusal(
            recipe, NotReadyError, **settings(path)
        )


def test_a_file_that_was_begun_goes_on_where_it_was(settings, recipe, tmp_path):
    plan = planned(recipe, **settings())
    whole = write(plan, tmp_path / "whole.safetensors", 2)
    storing = Storing(str(tmp_path / "part.safetensors"), 2)
    writer, teacher = (
        storing.writer(plan),
        Teaching(plan, Rank(0, 1, torch.device("cpu")), False),
    )
    for epoch in range(plan.epochs):
        writer = storing.writer(plan)  # as a later command
        assert writer.begin() == epoch
        for job, rows in teacher.rows(epoch, writer.kind):
            writer.write(epoch, 0, int(job.indices[0]), rows)
        writer.finish(epoch)
    storing.writer(plan).publish()
    assert (tmp_path / "part.safetensors").read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part*"))
    other = Storing(str(tmp_path / "part.safetensors"), 1)
    storing.writer(plan).begin()
    with pytest.raises(NotReadyError, match="was begun by another command"):
        other.writer(plan).begin()

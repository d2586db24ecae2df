"""A run folder appears completely, under a free name, and records the origin of the recipe."""

import errno
import fcntl
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Kind, NotReadyError, RecipeError
from resnet_recipes.jobs import new_run
from resnet_recipes.jobs.new_run import check_name, collect_provenance, create
from resnet_recipes.planning.plan import IMAGENET_FACTS, Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.run_folder import CONFIG, SUMMARY
from tests.shared.checks import get_error, get_problem
from tests.shared.tables import parse_rows


def make_test_plan(recipe: str | Path, *arguments: str) -> Plan:
    """Return the plan of a recipe for images that do not exist."""
    composed = compose(str(recipe), ["data=/data", *arguments])
    return make_plan(composed.recipe, IMAGENET_FACTS, 1, composed.origin)


@pytest.fixture(autouse=True)
def _work_in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def create_run(*arguments: str) -> Path:
    with create(make_test_plan("mild", *arguments), ["resnet-train"]) as held:
        return held.path


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_failed_create_leaves_no_folder(failure, monkeypatch):
    write = atomic.write_text

    def write_or_fail(path: Path, text: str) -> None:
        if path.name == "env.json":
            raise failure
        write(path, text)

    monkeypatch.setattr(atomic, "write_text", write_or_fail)
    with pytest.raises(NotReadyError if isinstance(failure, OSError) else KeyboardInterrupt):
        create_run("run=mine")
    assert list(Path("runs").iterdir()) == []
    monkeypatch.undo()


def test_name_of_run_without_steps_is_free():
    (create_run("run=mine") / "logs").mkdir()
    assert not (create_run("run=mine") / "logs").exists()
    Path("runs/mine/metrics.jsonl").write_text('{"kind": "begin", "step": 0}\n')
    create_run("run=mine")
    assert [path.name for path in Path("runs").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "text"),
    parse_rows(
        """
checkpoints/step-00000003.json | {}
summary.json | {}
teachers/mine.pt | which the new run may read
metrics.jsonl | {"kind": "step", "step": 20}
"""
    ),
)
def test_name_of_trained_run_is_taken(name, text):
    path = create_run("run=mine") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(RecipeError, match="is taken"):
        create_run("run=mine")
    assert path.read_text() == text


@pytest.mark.timeout(30)
def test_create_rejects_fifo_in_place_of_records():
    os.mkfifo(create_run("run=mine") / "metrics.jsonl")
    with pytest.raises(NotReadyError, match="Not a regular file"):
        create_run("run=mine")


def test_unused_run_is_replaced_without_deleting_its_folder(monkeypatch):
    folder = create_run("run=mine", "seed=1")
    rmtree, deleted = shutil.rmtree, []

    def record_and_delete(path: Path, **options: bool) -> None:
        deleted.append(path)
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", record_and_delete)
    assert create_run("run=mine", "seed=2") == folder
    assert deleted
    assert folder not in deleted  # another command may be about to train it
    assert "seed: 2" in (folder / "config.yaml").read_text()
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("arguments", [["seed=1"], ["seed=2", "lr=1"]])
@pytest.mark.parametrize("make", [create, lambda plan, _: check_name(plan.recipe.run)])
def test_run_about_to_start_keeps_its_name(make, arguments):
    with create(make_test_plan("mild", "run=mine", "seed=1"), ["resnet-train"]) as held:
        config = (held.path / CONFIG).read_bytes()
        problem = get_problem(
            NotReadyError, make, make_test_plan("mild", "run=mine", *arguments), ["resnet-train"]
        )
        assert (held.path / CONFIG).read_bytes() == config
        assert [path.name for path in held.path.parent.iterdir()] == ["mine"]
    assert (problem.key, problem.value) == ("run.name", "mine")
    assert problem.clause == f"is already running in {held.path}"
    assert problem.corrections == (f"resnet-recipes watch {held.path}",)


def test_create_keeps_run_trained_since_the_check(monkeypatch):
    folder = create_run("run=first")
    summary = folder / SUMMARY
    monkeypatch.setattr(new_run, "reject_links", lambda folder: summary.write_text("{}"))
    with pytest.raises(RecipeError, match="is taken"):
        create_run("run=first")
    assert summary.read_text() == "{}"


def test_create_names_folder_on_disk_without_locks(monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    problem = get_problem(NotReadyError, create_run, "run=mine")
    assert (problem.key, problem.kind) == (str(Path("runs").absolute()), Kind.WRONG)
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_create_rejects_name_of_another_file(kind, tmp_path):
    Path("runs").mkdir()
    mine = Path("runs/mine")
    other = tmp_path / "other"
    other.mkdir()
    {
        "file": mine.touch,
        "folder": lambda: (mine / "thesis").mkdir(parents=True),
        "link": lambda: mine.symlink_to(other),
    }[kind]()
    with pytest.raises(RecipeError, match=r"is taken: .* exists\n    use:   run=mine-2$"):
        create_run("run=mine")
    assert list(other.iterdir()) == []


def test_taken_run_name_suggests_free_name_and_resume():
    folder = create_run("run=mine")
    (folder / "weights.pt").touch()
    create_run("run=mine-2")
    error = get_error(RecipeError, create_run, "run=mine")
    suggested = error.problems[0].lines()[1:]
    assert suggested == ["use:   run=mine-3", f"try:   resnet-train --resume {folder}"]
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/step-00000002.json").write_text("{}")
    error = get_error(RecipeError, create_run, "run=mine")
    assert error.problems[0].lines()[1:] == suggested[:1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, whose local git configuration names a program."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "mine.yaml").write_text("defaults: [mild]\n")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/marker\n")
    script.chmod(0o755)
    run_git(folder, "init", "-q")
    run_git(folder, "add", ".")
    run_git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    run_git(folder, "config", "core.fsmonitor", str(script))
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_recipe_commit_is_read_without_running_git_hooks(repository, tmp_path):
    commit = run_git(repository, "rev-parse", "HEAD")
    (tmp_path / "marker").unlink(missing_ok=True)
    provenance = collect_provenance(make_test_plan(repository / "mine.yaml"), "")
    assert (provenance["git_commit"], provenance["origin"]) == (commit, "file")
    assert not (tmp_path / "marker").exists()
    run_git(repository, "status")
    assert (tmp_path / "marker").exists()  # shows that the test would notice the program


@pytest.mark.parametrize("head", ["ref: ../../etc/passwd", "junk", None])
def test_invalid_repository_has_no_commit(head, tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [mild]\n")
    (tmp_path / ".git").mkdir()
    if head is None:
        os.mkfifo(tmp_path / ".git/HEAD")
    else:
        (tmp_path / ".git/HEAD").write_text(head)
    assert collect_provenance(make_test_plan(tmp_path / "mine.yaml"), "")["git_commit"] is None


def check(plan: Plan) -> None:
    new_run.check_machine(plan.recipe, plan.disk, {"data"})


def test_check_rejects_run_larger_than_disk(set_free_space):
    set_free_space(2_000_000_000)
    check(make_test_plan("mild", "run.root=deep/runs"))
    set_free_space(1_000_000_000)
    with pytest.raises(NotReadyError, match=r"has 1 GB free, and the run needs 1.14 GB: 3 ch"):
        check(make_test_plan("mild", "run.root=deep/runs"))
    check(make_test_plan("mild", "model.name=resnet18"))
    assert list(Path().iterdir()) == []


def test_check_rejects_tracker_without_its_package(monkeypatch):
    monkeypatch.setattr("resnet_recipes.base.extras.find_spec", lambda name: None)
    check(make_test_plan("mild"))
    with pytest.raises(NotReadyError, match="packages that are not installed: wandb"):
        check(make_test_plan("mild", "log.to=[wandb]"))


def test_check_rejects_unwritable_root(monkeypatch):
    Path("file").touch()
    with pytest.raises(
        NotReadyError, match=r"run.root=.*/file/a cannot be written to: .* is a file"
    ):
        check(make_test_plan("mild", "run.root=file/a"))
    with pytest.raises(NotReadyError, match="File name too long"):
        check(make_test_plan("mild", f"run.root={'a' * 300}"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotReadyError, match="cannot be written to: Permission denied"):
        check(make_test_plan("mild"))


def test_check_name_rejects_only_a_taken_name():
    folder = create_run("run=mine")
    run = make_test_plan("mild", "run=mine").recipe.run
    check_name(run)  # it never trained
    (folder / "summary.json").write_text("{}")
    Path("runs/file").touch()
    for name in ("mine", "file"):
        with pytest.raises(RecipeError, match=rf"is taken: .*{name} (already )?exists"):
            check_name(replace(run, name=name))
    Path("runs/empty").mkdir()
    check_name(replace(run, name="empty"))
    create_run("run=empty")


def test_check_needs_no_weights_to_extend_a_run():
    parent = create_run()
    weights = "model.weights=missing.pth"
    with pytest.raises(NotReadyError, match=r"missing\.pth"):
        check(make_test_plan("mild", weights))
    check(make_test_plan("mild", weights, f"run.extends={parent}"))

"""The folder of a run appears whole, under a free name, and says where the recipe came from."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.launch import run_folder
from resnet_recipes.launch.run_folder import create, provenance
from resnet_recipes.planning.plan import IMAGENET, make_plan
from resnet_recipes.process.lock import locked
from resnet_recipes.recipe.compose import compose


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that makes the folder of a run in tmp_path/runs."""
    monkeypatch.chdir(tmp_path)

    def make(*words: str) -> Path:
        composed = compose("mild", ["data=/data", *words])
        return create(composed, make_plan(composed.recipe, IMAGENET, 1), ["resnet-train"])

    return make


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_folder_that_cannot_be_finished_leaves_nothing(failure, made, monkeypatch):
    write = atomic.write_text

    def failing(path: Path, text: str) -> None:
        if path.name == "env.json":
            raise failure
        write(path, text)

    monkeypatch.setattr(atomic, "write_text", failing)
    with pytest.raises(NotReadyError if isinstance(failure, OSError) else KeyboardInterrupt):
        made("run=mine")
    assert list(Path("runs").iterdir()) == []
    monkeypatch.undo()


def test_a_run_that_never_trained_a_step_leaves_its_name_free(made):
    (made("run=mine") / "logs").mkdir()
    assert not (made("run=mine") / "logs").exists()
    Path("runs/mine/metrics.jsonl").write_text('{"kind": "begin", "step": 0}\n')
    made("run=mine")
    assert [path.name for path in Path("runs").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("checkpoints/step-00000003.json", "{}"),
        ("summary.json", "{}"),
        ("metrics.jsonl", '{"kind": "step", "step": 20}\n'),
    ],
)
def test_a_run_that_has_trained_keeps_its_name(name, text, made):
    path = made("run=mine") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(RecipeError, match="is taken"):
        made("run=mine")
    assert path.read_text() == text


def test_a_run_that_is_starting_keeps_its_name(made):
    with locked(made("run=mine")), pytest.raises(NotReadyError, match="in use"):
        made("run=mine")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_name_taken_by_something_else_is_refused(kind, made, tmp_path):
    Path("runs").mkdir()
    mine, other = Path("runs/mine"), tmp_path / "other"
    other.mkdir()
    {
        "file": mine.touch,
        "folder": lambda: (mine / "thesis").mkdir(parents=True),
        "link": lambda: mine.symlink_to(other),
    }[kind]()
    with pytest.raises(RecipeError, match=r"is taken: .* exists\n    choose another name$"):
        made("run=mine")
    assert list(other.iterdir()) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, whose own configuration names a program."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "mine.yaml").write_text("defaults: [mild]\n")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/marker\n")
    script.chmod(0o755)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    git(folder, "config", "core.fsmonitor", str(script))
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git, and return what it prints."""
    return subprocess.run(
        ["git", "-C", folder, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_commit_of_a_recipe_is_read_without_running_what_its_repository_names(
    repository, tmp_path
):
    commit = git(repository, "rev-parse", "HEAD")
    (tmp_path / "marker").unlink(missing_ok=True)
    composed = compose(str(repository / "mine.yaml"), ["data=/data"])
    assert provenance(composed, "")["git_commit"] == commit
    assert not (tmp_path / "marker").exists()
    git(repository, "status")
    assert (tmp_path / "marker").exists()  # the program would have been noticed


@pytest.mark.parametrize("head", ["ref: ../../etc/passwd", "junk", None])
def test_an_invalid_repository_has_no_commit(head, tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [mild]\n")
    (tmp_path / ".git").mkdir()
    if head is None:
        os.mkfifo(tmp_path / ".git" / "HEAD")
    else:
        (tmp_path / ".git" / "HEAD").write_text(head)
    assert (
        provenance(compose(str(tmp_path / "mine.yaml"), ["data=/data"]), "")["git_commit"] is None
    )
    assert run_folder.environment()["packages"]["torch"]

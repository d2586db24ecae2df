"""A run writes to its own folder, or not at all."""

import os
import shutil
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.run_folder.held import HeldFolder, refuse_links


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder."""
    for name in ("run/checkpoints", "run/logs", "precious"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").touch()
    return tmp_path / "run"


def test_a_folder_of_files_and_folders_is_accepted(run):
    refuse_links(run)


@pytest.mark.parametrize(
    "name",
    ["lock", "heartbeat", "endings", "exit.json", "logs/rank0.log", "checkpoints/probe", "x"],
)
@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to(path.parents[-2] / "precious"), os.mkfifo],
    ids=["link", "fifo"],
)
def test_a_link_or_a_special_file_is_refused_wherever_it_is(name, make, run):
    make(run / name)
    with pytest.raises(NotReadyError, match=f"{name}: is a symbolic link or a special file"):
        refuse_links(run)


@pytest.mark.parametrize(
    "change",
    [
        lambda run: shutil.rmtree(run),
        lambda run: run.rename(run.with_name("moved")),
        lambda run: (shutil.rmtree(run), run.mkdir()),
        lambda run: (shutil.rmtree(run), run.touch()),
    ],
    ids=["deleted", "moved", "made again", "a file now"],
)
def test_a_folder_that_is_no_longer_the_same_is_noticed(change, run):
    held = HeldFolder(run)
    held.confirm()
    (run / "more").mkdir()
    held.confirm()
    change(run)
    with pytest.raises(TrainingError, match="was moved, deleted or replaced"):
        held.confirm()

"""A task keeps its folder only if its logs explain a failure."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.jobs import evaluate, task, teach
from resnet_recipes.jobs.machine import micro_batch, run_time
from resnet_recipes.jobs.ranks.group import Group
from resnet_recipes.jobs.ranks.rank import RankProcess, import_task
from resnet_recipes.jobs.task import NotDoneError, Task
from resnet_recipes.recipe.compose import compose
from resnet_recipes.run_folder import CONFIG, TASK
from resnet_recipes.run_folder.ending import Ending


@pytest.fixture
def task_folders(monkeypatch) -> list:
    """Start nothing; collect the folders of tasks, whose ranks end with the code `end`."""
    recorded = []

    def start(held, group, say):
        folder = held.path
        assert (folder / CONFIG).is_file()
        recorded.append(folder)
        return Ending(json.loads((folder / TASK).read_text())["end"])

    monkeypatch.setattr(task.launcher, "start", start)
    return recorded


def start_task(
    code: ExitCode, run_task: Callable[[RankProcess], int] = micro_batch.run_task
) -> AbstractContextManager[Path]:
    recipe = compose("mild", ["data=images"], needs_data=False).recipe
    return Task(run_task, "nothing fits", {"end": code}).run(recipe, None, Group(), print)


@pytest.mark.parametrize("module", [evaluate, micro_batch, run_time, teach])
def test_ranks_find_the_function_of_a_task(module, task_folders):
    with start_task(ExitCode.DONE, module.run_task) as folder:
        assert import_task(folder) is module.run_task


@pytest.mark.parametrize("code", [code for code in ExitCode if code])
def test_task_keeps_its_folder_only_after_failure(code, task_folders):
    with pytest.raises(NotDoneError, match="nothing fits") as failure, start_task(code):
        pytest.fail("the ranks did not finish")
    assert failure.value.exit_code == code
    assert task_folders[0].exists() == (code == ExitCode.FAILED)


def test_task_deletes_its_folder_when_reading_results_fails(task_folders):
    with pytest.raises(KeyError), start_task(ExitCode.DONE) as folder:
        raise KeyError(str(folder))
    assert not task_folders[0].exists()

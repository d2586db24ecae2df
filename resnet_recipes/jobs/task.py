"""One-off tasks of ranks, other than training a run, in a temporary folder."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import REJECTED_CODES, ExitCode, TrainingError
from resnet_recipes.base.text import Say
from resnet_recipes.data.base import DataFacts
from resnet_recipes.jobs import new_run
from resnet_recipes.jobs.ranks import launcher
from resnet_recipes.jobs.ranks.group import Group, make_group
from resnet_recipes.jobs.ranks.rank import RankProcess, Spans
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import CONFIG, DATA, TASK
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.lock import LockedFolder


class NotDoneError(TrainingError):
    """The ranks failed or were stopped; they have printed the reason."""

    def __init__(self, text: str, ending: Ending):
        super().__init__(text)
        self.exit_code = ExitCode(ending.code)


class Task(NamedTuple):
    """A one-off task of ranks: the function `run_task` of a module in this package."""

    run_task: Callable[[RankProcess], int]
    failure: str  # first line of the error if the ranks fail
    values: Mapping[str, object] = {}  # arguments for the ranks

    @contextmanager
    def run(
        self, recipe: Recipe, facts: DataFacts | None, group: Group, say: Say
    ) -> Iterator[Path]:
        """Run the task in a temporary folder; yield the folder, which contains the results.

        Raises NotDoneError if a rank fails or is stopped.
        """
        module = self.run_task.__module__.removeprefix("resnet_recipes.jobs.")
        files = {
            CONFIG: freeze(recipe),
            TASK: json.dumps({"task": module, **self.values}),
        }
        files |= {DATA: facts.to_json()} if facts else {}
        folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
        for name, text in files.items():
            atomic.write_text(folder / name, text)
        with _run_ranks(LockedFolder(folder), group, say, self.failure, folder):
            yield folder


@contextmanager
def run_sample(plan: Plan, spans: Spans, say: Say) -> Iterator[Path]:
    """Train parts of a run exactly as in the run; yield its folder.

    Raises NotDoneError if a rank fails or is stopped.
    """
    root = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    recipe = plan.recipe
    run = replace(recipe.run, root=str(root), name="sample", extends="")
    plan = replace(plan, recipe=replace(recipe, run=run, log=replace(recipe.log, to=[])))
    locked_folder = new_run.create(plan, sys.argv)
    folder = locked_folder.path
    (folder / TASK).write_text(json.dumps({"task": "train", "spans": spans}))
    group = make_group(recipe.launch)
    failure = "the sample run did not finish"
    with _run_ranks(locked_folder, group, say, failure, root):
        yield folder


@contextmanager
def _run_ranks(
    locked_folder: LockedFolder, group: Group, say: Say, failure: str, root: Path
) -> Iterator[None]:
    """Start ranks and wait for them; delete `root`, unless its logs explain a failure."""
    ending = launcher.start(locked_folder, group, say)
    try:
        if ending.code:
            raise NotDoneError(failure, ending)
        yield
    finally:
        if not ending.has_failed or ending.code in REJECTED_CODES:
            atomic.delete_folder(root)

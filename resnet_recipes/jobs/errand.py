"""What ranks do besides training a run, in a temporary folder."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from resnet_recipes.base.errors import REFUSED, ExitCode, TrainingError
from resnet_recipes.base.text import Say
from resnet_recipes.data.base import DataFacts
from resnet_recipes.jobs import launcher, new_run
from resnet_recipes.jobs.group import Group, group_of
from resnet_recipes.jobs.rank import Spans
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.frozen import sealed
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import CONFIG, DATA, JOB
from resnet_recipes.run_folder.ending import Ending


class NotDoneError(TrainingError):
    """The ranks have failed, or were stopped; they have said why."""

    def __init__(self, said: str, ending: Ending):
        super().__init__(said)
        self.exit_code = ExitCode(ending.code)


@contextmanager
def errand(
    job: str,
    recipe: Recipe,
    facts: DataFacts | None,
    group: Group,
    say: Say,
    **values: object,
) -> Iterator[tuple[Path, Ending]]:
    """Let ranks do a job; yield the folder, which has its results, and how they ended.

    `values` are for the ranks.
    """
    files = {CONFIG: sealed(recipe), JOB: json.dumps({"job": job, **values})}
    files |= {DATA: facts.to_json()} if facts else {}
    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    for name, text in files.items():
        (folder / name).write_text(text)
    ending = launcher.start(folder, group, say)
    try:
        yield folder, ending
    finally:
        _discard(folder, ending)


@contextmanager
def sample(plan: Plan, spans: Spans, say: Say) -> Iterator[tuple[Path, Ending]]:
    """Train parts of a run as it would; yield its folder, and how the ranks ended."""
    root = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    recipe = plan.recipe
    run = replace(recipe.run, root=str(root), name="sample", extends="")
    plan = replace(plan, recipe=replace(recipe, run=run, log=replace(recipe.log, to=[])))
    folder = new_run.create(plan, sys.argv)
    (folder / JOB).write_text(json.dumps({"job": "train", "spans": spans}))
    ending = launcher.start(folder, group_of(recipe.launch), say)
    try:
        yield folder, ending
    finally:
        _discard(root, ending)


def _discard(folder: Path, ending: Ending) -> None:
    """Delete a folder, unless its logs say why the ranks failed."""
    if not ending.failed or ending.code in REFUSED:
        shutil.rmtree(folder, ignore_errors=True)

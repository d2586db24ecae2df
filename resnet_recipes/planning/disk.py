"""The disk space that a run needs."""

from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import Hint, Problem
from resnet_recipes.base.paths import find_folder_problem
from resnet_recipes.base.text import format_bytes, format_count
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.network_facts import NetworkFacts
from resnet_recipes.recipe.schema import Recipe

#: Bytes of other files: metrics, logs, and the description of each weights file.
_OTHER_FILES = 4 << 20


class Disk(NamedTuple):
    """The maximum disk space, in bytes, that a run uses at any time."""

    checkpoint_bytes: int  # bytes of one checkpoint
    checkpoints: int  # number of checkpoints; an old one is deleted once the next is safe
    weight_bytes: int  # bytes of all files with weights after the training

    @property
    def total_bytes(self) -> int:
        """Bytes of checkpoints, weights and other files."""
        return self.checkpoint_bytes * self.checkpoints + self.weight_bytes + _OTHER_FILES

    def __str__(self) -> str:
        number = format_count(self.checkpoints, "checkpoint")
        size, weights, others = map(
            format_bytes, (self.checkpoint_bytes, self.weight_bytes, _OTHER_FILES)
        )
        total = format_bytes(self.total_bytes)
        return f"{total}: {number} of {size}, weights of {weights}, and {others} for logs"


def estimate_disk(recipe: Recipe, methods: Stack, network: NetworkFacts, saves: int) -> Disk:
    """Return the disk space of a run that saves a checkpoint `saves` times."""
    # BatchNorm statistics add at most 1%
    weight_bytes, trained_bytes = (
        int(4 * 1.01 * n) for n in (network.parameters, network.trained_parameters)
    )
    averages = sum(method.extra_weights for method in methods if method.provides("eval_weights"))
    best = int(recipe.checkpoint.best != "off")  # a copy in every checkpoint, and a file
    # frozen weights have no optimizer state
    checkpoint_bytes = (
        1 + averages + best
    ) * weight_bytes + recipe.optimizer.state_copies * trained_bytes
    stable = int(recipe.schedule.name == "wsd")  # the last checkpoint of the stable phase is kept
    checkpoints = min(recipe.checkpoint.keep + 1 + stable, saves)
    return Disk(checkpoint_bytes, checkpoints, (1 + averages + best) * weight_bytes)


def find_space_problem(folder: Path, needed_bytes: int) -> Problem | None:
    """Return a problem if checkpoints and weights of `needed_bytes` do not fit, or None.

    Existing checkpoints count as part of `needed_bytes`. The folder may not exist yet.
    """
    missing_bytes = needed_bytes - sum(path.stat().st_size for path in folder.glob("*"))
    need = f"the run needs another {format_bytes(missing_bytes)} for checkpoints and weights"
    problem = find_folder_problem(str(folder), folder, missing_bytes, need)
    return problem and problem._replace(
        value=None, fix=Hint("free some space, then resume the run")
    )

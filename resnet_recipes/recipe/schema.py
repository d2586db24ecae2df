"""A recipe: all sections as one dataclass, and the rules across sections."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Annotated, Any

from resnet_recipes.base import names
from resnet_recipes.base.duration import Duration, Horizon, count_steps_per_epoch, parse_fraction
from resnet_recipes.base.errors import Hint, Problem, Value
from resnet_recipes.base.limits import Bounds, IsDuration
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.base.section import Section
from resnet_recipes.data.base import DataConfig
from resnet_recipes.methods import Methods
from resnet_recipes.methods.optimizers import AnyOptimizer, DecoupledSGDW
from resnet_recipes.recipe.sections import (
    BatchConfig,
    CheckpointConfig,
    EvaluationConfig,
    LaunchConfig,
    LogConfig,
    PrecisionConfig,
    RunConfig,
    ScheduleConfig,
)
from resnet_recipes.run_folder.facts import PublishedResult

_STRETCH = Bounds(above=0, most=1000, fix=Value("1"))


@dataclass
class Recipe(Section):
    """All settings of a run.

    This class is the schema of the YAML file, its defaults, and the object that the program reads.
    """

    name: str = ""  # name of the recipe: lower-case letters, digits, '_'
    about: str = ""  # one line for `resnet-train --list`
    baseline: bool = False  # true for a recipe of another project, for comparison
    # duration of training before scaling
    max_duration: Annotated[str, IsDuration(units=("ep", "ba"))] = "90ep"
    # factor on max_duration, and on milestones in epochs or steps
    scale_schedule_ratio: Annotated[float, _STRETCH] = 1.0
    # seed of random numbers, except those of data.seed and data.val_seed
    seed: Annotated[int, Bounds(least=0, most=2**32 - 1)] = 42
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    optimizer: AnyOptimizer = field(default_factory=DecoupledSGDW)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    methods: Methods = field(default_factory=Methods)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    run: RunConfig = field(default_factory=RunConfig)
    published: list[PublishedResult] = field(default_factory=list)

    @property
    def ratio(self) -> Fraction:
        """`scale_schedule_ratio`, exactly as typed."""
        return parse_fraction(self.scale_schedule_ratio)

    @property
    def duration(self) -> Duration:
        """`max_duration` times scale_schedule_ratio, in full units: 28.8ep becomes 28ep."""
        return Duration.parse(self.max_duration).scale(self.ratio)

    def horizon(self, examples: int) -> Horizon:
        """Return the duration of a run on `examples` training images."""
        steps = count_steps_per_epoch(examples, self.batch.global_size)
        scale = steps if self.duration.unit == "ep" else 1
        return Horizon(int(self.duration.value * scale), steps)

    def milestones(self, horizon: Horizon) -> list[int]:
        """Return the steps of the milestones, those in epochs or steps times the ratio."""
        durations = [Duration.parse(text) for text in self.schedule.milestones]
        return [
            int(horizon.steps(item) * (1 if item.unit == "dur" else self.ratio))
            for item in durations
        ]

    def problems(self) -> Iterator[Problem]:
        if not names.RECIPE.fullmatch(self.name):
            hint = Hint("rename the file, or set another name in it")
            rule = "must consist of lower-case letters, digits and '_'"
            yield Problem("name", self.name, rule, hint)
        yield from super().problems()
        if re.fullmatch(r"\d*\.\d*[1-9]\d*ba", self.max_duration):
            rule = "must be a whole number of batches"
            yield Problem("max_duration", self.max_duration, rule, "max_duration=100ba ssr=1")
        for section in fields(self):
            value: Any = getattr(self, section.name)
            if section.name == "methods":
                for name, method in get_enabled(value).items():
                    yield from (problem.under(f"methods.{name}") for problem in method.problems())
            elif hasattr(value, "problems"):
                yield from (problem.under(section.name) for problem in value.problems())


def get_enabled(methods: Methods) -> dict[str, Any]:
    """Return the methods that are on, by name, in running order."""
    return {name: method for name, method in vars(methods).items() if method is not None}

"""Sections of a recipe that are not defined in other packages: defaults and rules."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar

from resnet_recipes.base import names
from resnet_recipes.base.duration import find_amount, parse_budget, parse_time
from resnet_recipes.base.errors import BrokenRuleError, Fix, Hint, Kind, Problem, Statement, Value
from resnet_recipes.base.extras import TRACKERS
from resnet_recipes.base.limits import (
    BelowOne,
    Bounds,
    DurationOrZero,
    OneOf,
    Positive,
    PositiveDuration,
    ZeroToOne,
)
from resnet_recipes.base.section import Section
from resnet_recipes.base.suggestions.values import read_budget

AUTO = "auto"  # batch.bn_size that a run finds by trying

SCHEDULES = ("cosine", "linear", "multistep", "polynomial", "wsd", "constant")


@dataclass
class BatchConfig(Section):
    """The `batch` section: numbers of images; only `global_size` counts all devices."""

    _prefix = "batch."

    # images per optimizer step, over all devices
    global_size: Annotated[int, Bounds(least=1, most=2**20)] = 2048
    # images that share BatchNorm statistics: the micro-batch of one device. With fewer images per
    # step, all images of a device share statistics. `auto` is the largest number that fits in GPU
    # memory; the run finds it by trial when it starts.
    bn_size: Annotated[int | str, Bounds(least=1, most=2**20, keyword=AUTO)] = 256
    # images per evaluation batch on one device
    eval_size: Annotated[int, Bounds(least=1, most=2**20)] = 256
    # average BatchNorm's running statistics over devices at the end of every epoch
    bn_average: bool = False

    def get_micro_batch_size(self, rank_size: int) -> int:
        """Return how many of a rank's images share BatchNorm statistics; all if auto."""
        return rank_size if self.bn_size == AUTO else min(int(self.bn_size), rank_size)


@dataclass
class ScheduleConfig(Section):
    """The `schedule` section: the learning rate over the run, relative to `optimizer.lr`."""

    _prefix = "schedule."
    #: The schedules that use a setting; settings without an entry apply to all.
    READ_BY: ClassVar[dict[str, tuple[str, ...]]] = {
        "from_start": ("cosine",),
        "final": ("cosine", "linear", "polynomial"),
        "power": ("polynomial",),
        "cooldown": ("wsd",),
        "shape": ("wsd",),
        "milestones": ("multistep",),
        "gamma": ("multistep",),
    }

    # cosine | linear | multistep (schedule=step) | polynomial | wsd | constant
    name: Annotated[str, OneOf(*SCHEDULES)] = "cosine"
    # linear rise to the peak. `scale_schedule_ratio` does not change a warm-up in epochs or steps.
    warmup: DurationOrZero = "8ep"
    start: BelowOne = 0.0  # fraction of the peak lr at the start of the warm-up
    # cosine: decay from step 0; the warm-up replaces its first part
    from_start: bool = False
    final: ZeroToOne = 0.0  # cosine, linear, polynomial: fraction of the peak lr at the end
    power: Positive = 2.0  # polynomial: exponent of the decay
    # wsd: duration of the decay at the end of the run
    cooldown: PositiveDuration = "0.2dur"
    # wsd: shape of the decay: linear | sqrt. `sqrt` is 1 - sqrt(fraction of the decay).
    shape: Annotated[str, OneOf("linear", "sqrt")] = "linear"
    # multistep: times when lr falls. `scale_schedule_ratio` multiplies milestones in epochs or
    # steps.
    milestones: list[PositiveDuration] = field(default_factory=list)
    # multistep: factor on lr at each milestone
    gamma: Annotated[float, Bounds(above=0, most=1)] = 0.1
    # step: update lr at every step | epoch: once per epoch
    interval: Annotated[str, OneOf("step", "epoch")] = "step"

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.name == "multistep" and not self.milestones:
            clause = Statement("the multistep schedule needs milestones")
            yield Problem("milestones", [], clause, Value("[0.33dur,0.67dur]"))


@dataclass
class PrecisionConfig(Section):
    """The `precision` section: number format, memory layout and kernels."""

    _prefix = "precision."

    # bf16 | fp16 | fp32 | auto. `auto` is fp32 on a CPU, bf16 on a GPU that supports it, else fp16.
    dtype: Annotated[str, OneOf("auto", "bf16", "fp16", "fp32")] = "auto"
    channels_last: bool = True  # NHWC memory layout, which tensor cores read faster
    # auto: fused operations and CUDA graphs on a GPU | off: plain torch
    kernels: Annotated[str, OneOf("auto", "off")] = "auto"
    compile: bool = False  # torch.compile the model
    # send gradients as bf16: half the traffic, with rounding errors
    compress_gradients: bool = False


_PIXELS = Bounds(
    least=8,
    most=1024,
    text="between 8 and 1,024 pixels",
    fix="'evaluation.sizes=[192,224,256,288]'",
)


_PERCENT = Bounds(
    least=1, most=100, text="a percentage from 1 to 100", fix=Hint("stop_at_top1=75.9")
)


@dataclass
class EvaluationConfig(Section):
    """The `evaluation` section: when and how the validation images are evaluated."""

    _prefix = "evaluation."

    # end the run at the first evaluation that reaches this percentage
    stop_at_top1: Annotated[float | None, _PERCENT] = None
    # time between evaluations; the last step is always evaluated
    interval: PositiveDuration = "1ep"
    # shift of evaluations: 3ep with interval=4ep evaluates after epochs 3, 7, 11 ...
    offset: DurationOrZero = "0ep"
    flip: bool = False  # average the predictions for an image and its horizontal flip (2x compute)
    # image sizes in pixels; `resnet-recipes eval` prints one row for each
    sizes: list[Annotated[int, _PIXELS]] = field(default_factory=list)


@dataclass
class CheckpointConfig(Section):
    """The `checkpoint` section: when weights are saved, and which are kept."""

    _prefix = "checkpoint."

    # time between checkpoints; the last step is always saved
    interval: PositiveDuration = "1ep"
    # how many of the newest checkpoints stay on disk
    keep: Annotated[int, Bounds(least=2, most=10_000)] = 2
    # also keep the weights of the best evaluation: off | top1 | balanced_accuracy | loss
    best: Annotated[str, OneOf("off", "top1", "balanced_accuracy", "loss")] = "off"


@dataclass
class LogConfig(Section):
    """The `log` section: how often a run records its progress, and where."""

    _prefix = "log."

    # time between logged steps; logging waits for the device
    interval: PositiveDuration = "20ba"
    # tensorboard | wandb | mlflow | csv, in addition to metrics.jsonl
    to: list[Annotated[str, OneOf(*TRACKERS)]] = field(default_factory=list)


_GPU_COUNT = Bounds(
    least=1,
    most=64,
    keyword="auto",
    fix=(
        Value("8"),
        Hint("for several machines: resnet-recipes job --for slurm mild data=PATH nodes=2 gpus=8"),
    ),
)

_PRICE_BOUNDS = Bounds(
    least=0,
    below=1e6,
    text="a price per hour",
    fix=Hint("write the price of an hour, as in launch.price=32.77"),
)


@dataclass
class LaunchConfig(Section):
    """The `launch` section: devices, restarts, and limits of time and money."""

    _prefix = "launch."

    # cuda | cpu | auto: cuda if available, else cpu
    device: Annotated[str, OneOf("auto", "cuda", "cpu")] = "auto"
    # GPUs, one process each; auto: all visible GPUs, or one CPU process
    gpus: Annotated[int | str, _GPU_COUNT] = "auto"
    # how often all ranks may restart from the last checkpoint after failures
    max_restarts: Annotated[int, Bounds(least=0, most=100)] = 0
    # price of this machine per hour, in any currency. The plan and the results then show the cost
    # of the run, and `$` in a budget stands for this currency.
    price: Annotated[float | None, _PRICE_BOUNDS] = None
    # "2h", "90m" or "$20": train for as many epochs as fit. An amount needs `launch.price`.
    budget: str = ""
    # "3.5h" or "45m": save and stop before this time has passed. The exit code is then 75.
    max_wall: str = ""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if find_amount(self.budget) and not self.price:
            clause = f"an amount such as {self.budget} needs the price per hour"
            form = Hint("launch.price=PRICE_PER_HOUR")
            yield Problem("price", None, clause, form, kind=Kind.MISSING)
        for key, seconds in (
            ("max_wall", parse_time),
            ("budget", partial(parse_budget, price=self.price or 1.0)),
        ):
            try:
                if value := getattr(self, key):
                    seconds(value)
            except BrokenRuleError as error:
                likely_value = read_budget(value.lstrip("-"))
                fix: Fix = Value(likely_value) if likely_value != value else ()
                numbers = [*filter(float, re.findall(r"\d{1,4}(?:\.\d+)?", value))]
                if numbers and not likely_value:  # 90 or 2x
                    fix = Value(f"{numbers[0]}h"), Value(f"{numbers[0]}m")
                if value == "0":  # a shell replaces $2 in $20 by nothing
                    fix = Value("$20")
                yield Problem(key, value, error.clause, fix)


@dataclass
class RunConfig(Section):
    """The `run` section: the folder of the results."""

    _prefix = "run."

    root: str = "runs"  # folder of all runs
    # wsd: the run whose stable phase this run continues: its folder, or its name in `run.root`
    extends: str = ""
    # folder of this run; auto: recipe, duration, seed, date, random number
    name: str = "auto"

    def problems(self) -> Iterator[Problem]:
        if not names.RUN_NAME.fullmatch(self.name):
            rule = (
                "must consist of letters, digits, '.', '_', '+' and '-', and start with a "
                "letter or digit"
            )
            folder, _, last = self.name.rpartition("/")
            name = last if os.path.isdir(folder or "/") or folder == self.root else self.name
            valid_name = re.sub(r"[^\w.+-]+", "-", name, flags=re.ASCII).strip("-.")
            fix = (
                Value(valid_name)
                if names.RUN_NAME.fullmatch(valid_name)
                else Hint("as in run=baseline")
            )
            yield Problem("name", self.name, rule, fix)
        if self.name == "last":
            yield Problem("name", self.name, "is reserved for the most recent run")

"""The sections of a recipe that belong to no other room, each with its defaults and rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from resnet_recipes.base import names
from resnet_recipes.base.duration import budget_seconds, clock_seconds, duration_problem
from resnet_recipes.base.errors import Problem
from resnet_recipes.base.extras import TRACKERS
from resnet_recipes.base.section import Section
from resnet_recipes.recipe.foreign import meaning_of

#: `batch.bn_size` that is to be found by trying.
AUTO = "auto"

#: What is true of other devices that torch knows.
_OTHER_DEVICES = {
    "mps": "; a Mac's GPU cannot be used",
    **dict.fromkeys(("hip", "rocm"), "; torch calls AMD's GPUs cuda, too; they are untried"),
    **dict.fromkeys(("hpu", "npu", "tpu", "xla", "xpu"), "; of accelerators, only GPUs with CUDA"),
}


@dataclass
class BatchConfig(Section):
    """The `batch` section: sizes are global, so 1 or 8 devices give the same result."""

    _place: ClassVar[str] = "batch."

    global_size: int = 2048  # examples per optimizer step, over all devices
    # examples that share BatchNorm statistics: the micro-batch of one device; auto: the most that
    # fit in the GPU's memory, found by trying when the run begins
    bn_size: int | str = 256
    eval_size: int = 256  # examples per evaluation batch on one device
    # average BatchNorm's running statistics over devices at the end of every epoch
    bn_average: bool = False

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `batch`."""
        for key in ("global_size", "bn_size", "eval_size"):
            value, or_auto = getattr(self, key), "auto, or " * (key == "bn_size")
            if value != AUTO and not (isinstance(value, int) and 1 <= value <= 2**20):
                yield Problem(key, value, f"must be {or_auto}between 1 and {2**20}")

    def micro_batch(self, rank_size: int) -> int:
        """Return how many of a rank's examples share BatchNorm statistics; all if auto."""
        return rank_size if self.bn_size == AUTO else min(int(self.bn_size), rank_size)


@dataclass
class ScheduleConfig(Section):
    """The `schedule` section: the learning rate as a share of `optimizer.lr`."""

    _place: ClassVar[str] = "schedule."
    #: The schedules that read a setting; all read the others.
    READ_BY: ClassVar[dict[str, tuple[str, ...]]] = {
        "from_start": ("cosine",),
        "final": ("cosine", "linear", "polynomial"),
        "power": ("polynomial",),
        "cooldown": ("wsd",),
        "shape": ("wsd",),
        "milestones": ("multistep", "piecewise"),
        "gamma": ("multistep",),
        "values": ("piecewise",),
    }

    name: str = "cosine"  # cosine | linear | multistep | piecewise | polynomial | wsd | constant
    warmup: str = "8ep"  # linear rise to the peak; never stretched by scale_schedule_ratio
    start: float = 0.0  # share of the peak rate at the start of the warm-up
    # decay from the run's start, hidden by the warm-up at first
    from_start: bool = False
    final: float = 0.0  # share of the peak rate at the end: cosine, linear, polynomial
    power: float = 2.0  # polynomial only
    cooldown: str = "0.2dur"  # wsd: the fall at the end; the rate is constant before it
    shape: str = "linear"  # wsd, of that fall: linear | sqrt (1 - sqrt of the share of it)
    # when gamma applies, or when a value is reached
    milestones: list[str] = field(default_factory=list)
    gamma: float = 0.1  # multistep only
    # piecewise: shares of the peak, at start and milestones
    values: list[float] = field(default_factory=list)
    interval: str = "step"  # step: a new rate every step | epoch: constant within an epoch

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `schedule`."""
        names = ("cosine", "linear", "multistep", "piecewise", "polynomial", "wsd", "constant")
        if self.name not in names:
            yield Problem("name", self.name, f"must be one of {', '.join(names)}")
        yield from duration_problem("warmup", self.warmup, positive=False)
        yield from duration_problem("cooldown", self.cooldown)
        if self.shape not in ("linear", "sqrt"):
            yield Problem("shape", self.shape, "must be linear or sqrt")
        for text in self.milestones:
            yield from duration_problem("milestones", text)
        if not 0 <= self.final <= 1:
            yield Problem(
                "final", self.final, "must be between 0 and 1: it is a share of optimizer.lr"
            )
        if not 0 <= self.start < 1:
            yield Problem(
                "start", self.start, "must be at least 0 and below 1: it is a share of optimizer.lr"
            )
        if not self.power > 0:
            yield Problem("power", self.power, "must be positive")
        if not 0 < self.gamma <= 1:
            yield Problem("gamma", self.gamma, "must be above 0 and at most 1")
        if self.interval not in ("step", "epoch"):
            yield Problem("interval", self.interval, "must be step or epoch")
        if self.name in ("multistep", "piecewise") and not self.milestones:
            fix = "'schedule.milestones=[30ep,60ep,80ep]'"
            yield Problem("milestones", None, f"the {self.name} schedule needs milestones", fix)
        if self.name == "piecewise" and len(self.values) != len(self.milestones) + 1:
            yield Problem(
                "values", self.values, "needs one value for the start and one for each milestone"
            )


@dataclass
class PrecisionConfig(Section):
    """The `precision` section."""

    _place: ClassVar[str] = "precision."

    # auto: bf16 where the GPU has it, else fp16; fp32 on a CPU | bf16 | fp16 | fp32
    dtype: str = "auto"
    channels_last: bool = True  # NHWC memory: 1.2 to 1.5 times faster with tensor cores
    kernels: str = "auto"  # auto: fused operations and CUDA graphs on a GPU | off: torch's own
    compile: bool = False  # torch.compile the model
    # send gradients as bf16: half the traffic, slightly different results
    compress_gradients: bool = False

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `precision`."""
        if self.dtype not in ("auto", "bf16", "fp16", "fp32"):
            yield Problem(
                "dtype", self.dtype, "must be auto, bf16, fp16 or fp32", _words("dtype", self.dtype)
            )
        if self.kernels not in ("auto", "off"):
            yield Problem("kernels", self.kernels, "must be auto or off")


@dataclass
class EvaluationConfig(Section):
    """The `evaluation` section."""

    _place: ClassVar[str] = "evaluation."

    # percent: end the run at the first evaluation that reaches it
    stop_at_top1: float | None = None
    interval: str = "1ep"  # time between evaluations; the last step is always evaluated
    offset: str = "0ep"  # with 3ep, an interval of 4ep evaluates after epochs 3, 7, 11 ...
    flip: bool = False  # average the predictions of each image and its mirror image; twice the work
    # pixels: `resnet-recipes eval` prints a table of these sizes
    sizes: list[int] = field(default_factory=list)

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `evaluation`."""
        yield from duration_problem("interval", self.interval)
        yield from duration_problem("offset", self.offset, positive=False)
        target = self.stop_at_top1
        if target is not None and not 1 <= target <= 100:
            rule = "must be a percentage from 1 to 100, as in 75.9"
            fix = f"evaluation.stop_at_top1={100 * target:g}" if 0 < target < 1 else ""
            yield Problem("stop_at_top1", target, rule, fix)
        if wrong := [size for size in self.sizes if not 8 <= size <= 1024]:
            yield Problem(
                "sizes",
                wrong,
                "must be between 8 and 1024 pixels",
                "'evaluation.sizes=[192,224,256,288]'",
            )


@dataclass
class CheckpointConfig(Section):
    """The `checkpoint` section."""

    _place: ClassVar[str] = "checkpoint."

    interval: str = "1ep"  # time between checkpoints; the last step is always saved
    keep: int = 2  # how many of the newest checkpoints stay on disk

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `checkpoint`."""
        yield from duration_problem("interval", self.interval)
        if not 2 <= self.keep <= 10_000:
            rule = "must be between 2, so that one damaged file never loses the run, and 10000"
            yield Problem("keep", self.keep, rule)


@dataclass
class LogConfig(Section):
    """The `log` section."""

    _place: ClassVar[str] = "log."

    interval: str = "20ba"  # time between logged steps; only those wait for the device
    # tensorboard | wandb | mlflow | csv, in addition to metrics.jsonl
    to: list[str] = field(default_factory=list)
    mlperf: bool = False  # write result_0.txt at the end: the run in MLPerf's log format

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `log`."""
        yield from duration_problem("interval", self.interval)
        for name in self.to:
            if name not in TRACKERS:
                rule = f"must be one of {', '.join(TRACKERS)}"
                yield Problem("to", name, rule, "'log.to=[tensorboard]'")


@dataclass
class LaunchConfig(Section):
    """The `launch` section: where the run runs. Nothing here changes the result."""

    _place: ClassVar[str] = "launch."

    device: str = "auto"  # auto: cuda if there is one, else cpu | cuda | cpu
    # GPUs, one process each; auto: every visible one, or one CPU process
    gpus: int | str = "auto"
    # how often all ranks may restart from the last checkpoint after a failure
    max_restarts: int = 0
    # of this machine per hour, in any currency; the plan then shows the run's cost
    price: float | None = None
    # "2h", "90m" or "$20" at launch.price: train for as many epochs as fit, by what was measured on
    # this machine; "": the recipe's length
    budget: str = ""
    # "3.5h" or "45m": save and stop with exit code 75 before this time has passed
    max_wall: str = ""

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `launch`."""
        if self.device not in ("auto", "cuda", "cpu"):
            rule = f"must be auto, cuda or cpu{_OTHER_DEVICES.get(self.device.lower(), '')}"
            yield Problem("device", self.device, rule, _words("device", self.device))
        if self.gpus != "auto" and not (isinstance(self.gpus, int) and 1 <= self.gpus <= 64):
            rule, fix = "must be auto or a number from 1 to 64", _words("gpus", str(self.gpus))
            yield Problem("gpus", self.gpus, rule, fix)
        if self.price is not None and not 0 <= self.price < 1e6:
            yield Problem("price", self.price, "must be a price per hour, as in 32.77")
        if not 0 <= self.max_restarts <= 100:
            yield Problem("max_restarts", self.max_restarts, "must be between 0 and 100")
        for key, seconds in (
            ("max_wall", clock_seconds),
            ("budget", partial(budget_seconds, price=self.price)),
        ):
            try:
                if value := getattr(self, key):
                    seconds(value)
            except ValueError as error:
                fix = "launch.price=32.8" if "price" in str(error) else f"launch.{key}=2h"
                yield Problem(key, value, str(error), fix)


@dataclass
class RunConfig(Section):
    """The `run` section: where the results go."""

    _place: ClassVar[str] = "run."

    root: str = "runs"  # folder of all runs
    # folder of this run; auto: recipe, length, seed, date and four random letters
    name: str = "auto"

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `run`."""
        if not names.RUN.fullmatch(self.name):
            rule = (
                "must consist of letters, digits, '.', '_', '+' and '-', and start with a "
                "letter or digit"
            )
            yield Problem("name", self.name, rule)


def _words(name: str, value: str) -> str:
    """Return what to type for a value of other programs; "" if it is none."""
    meaning = meaning_of(name, value)
    return meaning.words if meaning and not meaning.words.endswith(f"={value}") else ""

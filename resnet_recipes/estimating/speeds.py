"""Where the speeds of a machine come from: measured, from a datasheet, or a guess."""

import hashlib
import json
import platform
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from resnet_recipes import __version__
from resnet_recipes.base import atomic
from resnet_recipes.base.cores import cores, emulates
from resnet_recipes.base.paths import cache_folder
from resnet_recipes.estimating.estimate import Course, Speeds
from resnet_recipes.estimating.roofline import Gpu, speed

#: How much longer a step takes if ranks exchange gradients: a guess.
EXCHANGE = 1.05

#: Billions of multiply-adds per second on one CPU core; two cores reach 17 in this project's demo,
#: 29 on CIFAR-10.
PER_CORE = 12

#: How much longer a CPU takes in a type that it has no instructions for: measured with ResNet-18 on
#: one AMD EPYC with AVX2.
EMULATED = 6


def key_of(facts: Mapping[str, object]) -> str:
    """Return the name under which speeds are kept.

    It changes with the machine, the version and any of `facts`.
    """
    everything = {
        **{name: str(value) for name, value in facts.items()},
        "host": platform.node(),
        "cores": cores(),
        "resnet-recipes": __version__,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:24]


def recall(key: str) -> tuple[Speeds, float] | None:
    """Return speeds that were measured before, and when, in seconds since the epoch.

    None if nothing was, or the record is damaged.
    """
    try:
        value = json.loads(_path(key).read_bytes())
        return Speeds.of_json(value["speeds"]), float(value["when"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(key: str, speeds: Speeds) -> None:
    """Keep speeds for the next time.

    If the home folder cannot be written to, they are forgotten.
    """
    try:
        _path(key).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(_path(key), json.dumps({"speeds": asdict(speeds), "when": time.time()}))
    except OSError:
        return


def _path(key: str) -> Path:
    return cache_folder() / "speeds" / f"{key}.json"


def sampled(sizes: Sequence[int], count: int) -> list[int]:
    """Return `count` epochs to time by the papers' rule, of a run with images of `sizes` by epoch.

    At least 3, if it has as many. They are the first ones. With several image sizes they are the
    first two, since the first fills caches and is counted as long as the second, and one epoch at
    each of some other sizes, from the largest down.
    """
    others = sorted(set(sizes) - set(sizes[:2]), reverse=True)
    if not others:
        return list(range(min(count, len(sizes))))
    last = {size: epoch for epoch, size in enumerate(sizes)}
    picks = min(max(1, count - 2), len(others))
    spread = {others[place * (len(others) - 1) // max(1, picks - 1)] for place in range(picks)}
    return sorted({0, 1, *(last[size] for size in spread)})


def speeds_of(course: Course, timed: Mapping[int, float], evaluation: float | None) -> Speeds:
    """Return the speeds of a run whose epochs took these seconds, by number, counted from 0.

    The first is timed as the second. `evaluation` are images per second, if one was timed.
    """
    found = defaultdict(list)
    for epoch, seconds in {**timed, 0: timed[1]}.items():
        found[course.sides[epoch]].append(seconds / course.images[epoch])
    step = {side: (mean(each),) for side, each in found.items()}
    # the parts of a step were not timed
    return Speeds(step, evaluation, limits=dict.fromkeys(course.sides, "?"))


def on_cpu(course: Course, cores: int, dtype: str) -> Speeds:
    """Return what a CPU is guessed to do."""
    rate = 2e9 * PER_CORE * cores / (EMULATED if emulates(dtype) else 1)
    operations = course.network.operations
    return Speeds(
        {side: (course.passes * operations(side).training / rate,) for side in course.sides},
        rate / operations(course.eval_side).forward,
    )


def on_gpus(course: Course, gpu: Gpu) -> Speeds:
    """Return what GPUs of one kind are expected to do by the roofline, if loading keeps up."""
    sides = {*course.sides, course.eval_side}
    found = {side: speed(gpu, course.work._replace(side=side)) for side in sides}
    exchange = EXCHANGE if course.devices > 1 else 1
    seconds = exchange * course.passes / course.devices
    forward, training = course.network.operations(course.eval_side)
    return Speeds(
        {side: (seconds / one.images_per_second,) for side, one in found.items()},
        course.devices * found[course.eval_side].images_per_second * training / forward,
        limits={side: one.limit for side, one in found.items()},
    )

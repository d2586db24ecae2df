"""Speeds that are expected where none were measured, computed from a run's arithmetic."""

from resnet_recipes.base.cores import emulates
from resnet_recipes.estimating.datasheet import Gpu
from resnet_recipes.estimating.estimate import Course, Speeds
from resnet_recipes.estimating.roofline import speed

#: How much longer a step takes if ranks exchange gradients: a guess.
EXCHANGE = 1.05

#: Billions of multiply-adds per second on one CPU core; two cores reach 17 in this project's demo,
#: 29 on CIFAR-10.
PER_CORE = 12

#: How much longer a CPU takes in a type that it has no instructions for: measured with ResNet-18 on
#: one AMD EPYC with AVX2.
EMULATED = 6


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

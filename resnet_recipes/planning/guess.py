"""Rough estimates of a run's time and memory, computed from its arithmetic rather than measured."""

from collections import Counter

from resnet_recipes.base.cores import emulates
from resnet_recipes.measure import roofline
from resnet_recipes.measure.datasheet import Gpu
from resnet_recipes.measure.roofline import Speed, Work
from resnet_recipes.planning.network import teaching
from resnet_recipes.planning.plan import Plan

#: How much longer a step takes if ranks exchange gradients: a guess.
EXCHANGE = 1.05

#: Billions of multiply-adds per second on one CPU core; two cores reach 17 in this project's demo,
#: 29 on CIFAR-10.
PER_CORE = 12

#: How much longer a CPU takes in a type that it has no instructions for: measured with ResNet-18 on
#: one AMD EPYC with AVX2.
EMULATED = 6


def cpu_seconds(plan: Plan, cores: int) -> float:
    """Return the seconds of all forward and backward passes of a run on a CPU."""
    times = EMULATED if emulates(plan.recipe.precision.dtype) else 1
    return times * sum(plan.flops) / 2 / (1e9 * PER_CORE * cores)


def gpu_speeds(plan: Plan, gpu: Gpu) -> list[Speed]:
    """Return one GPU's expected speed at each image size of a run, if loading keeps up.

    Ignores second gradients.
    """
    return [roofline.speed(gpu, _work(plan, side)) for side in sorted(set(plan.sizes))]


def gpu_seconds(plan: Plan, gpu: Gpu) -> float:
    """Return the seconds of a run on GPUs of one kind, if loading keeps up."""
    speeds = {speed.side: speed.images_per_second for speed in gpu_speeds(plan, gpu)}
    seconds = sum(images / speeds[side] for side, images in _images(plan).items())
    exchange = EXCHANGE if plan.world_size > 1 else 1
    return seconds * _passes(plan) * exchange / plan.world_size


def gpu_memory(plan: Plan) -> float:
    """Return the bytes that a run in bf16 or fp16 needs on each GPU, to some tens of percent."""
    # weights, gradients, what the optimizer keeps
    optimizer = plan.recipe.optimizer
    copies = 2 + optimizer.state_copies + optimizer.scratch_copies
    copies += sum(method.extra_weights for method in plan.methods())
    work = _work(plan, max(plan.sizes))
    teachers = sum(4 * teacher.network.parameters for teacher in plan.teachers)
    return teachers + roofline.memory(work, plan.rank_size, plan.network.parameters, copies)


def roughly(seconds: float) -> str:
    """Return a length of time to one or two digits, as "11 weeks".

    The unit is the largest that fits at least twice.
    """
    units = (
        ("years", 365.25 * 86400),
        ("weeks", 7 * 86400),
        ("days", 86400),
        ("hours", 3600),
        ("minutes", 60),
    )
    name, unit = next((item for item in units if seconds >= 2 * item[1]), units[-1])
    number = seconds / unit
    return (
        f"{max(1, round(number)) if number < 100 else round(number, -1):,.0f} "
        f"{name if number >= 1.5 else name[:-1]}"
    )


def _work(plan: Plan, side: int) -> Work:
    precision = plan.recipe.precision
    return Work(
        plan.recipe.model.name,
        side,
        plan.bn_size,
        any(method.blurs for method in plan.methods()),
        precision.kernels == "auto" and precision.channels_last,
    )


def _images(plan: Plan) -> Counter[int]:
    """Return the number of training images of a run at each image size."""
    found, last = Counter(), len(plan.sizes) - 1
    for epoch, side in enumerate(plan.sizes):
        steps = (
            plan.steps_per_epoch if epoch < last else plan.total_steps - last * plan.steps_per_epoch
        )
        found[side] += steps * plan.recipe.batch.global_size
    return found


def _passes(plan: Plan) -> float:
    """Return the average number of forward and backward passes per image.

    Of a teacher's forward pass, the share that its operations are of one of them.
    """
    side = max(plan.sizes)
    taught = teaching(plan.teachers, side) / plan.network.flops(side)
    return taught + (1 + 1 / plan.extra_gradient_every if plan.extra_gradient_every else 1.0)

"""Predict the speeds and the memory of a run without a measurement."""

from resnet_recipes.base.cores import is_emulated
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.roofline import GpuDatasheet, Work, count_memory, predict_speed

#: Factor on the time of a step with an all-reduce: a guess.
ALL_REDUCE_FACTOR = 1.05

#: Billions of multiply-adds per second on one CPU core; two cores reach 17 in this project's demo,
#: 29 on CIFAR-10.
CORE_GIGAMACS = 12

#: Factor on the CPU time for a dtype without CPU instructions, measured with ResNet-18 on one AMD
#: EPYC with AVX2.
EMULATION_FACTOR = 6


def guess_cpu_speeds(plan: Plan, cores: int) -> Speeds:
    """Return the speeds of a CPU with this many cores, guessed from the FLOPs of the network."""
    count_flops = plan.network.count_flops
    factor = EMULATION_FACTOR if is_emulated(plan.recipe.precision.dtype) else 1
    rate = 2e9 * CORE_GIGAMACS * cores / factor
    return Speeds(
        {
            image_size: (plan.passes * count_flops(image_size).training / rate,)
            for image_size in plan.image_sizes
        },
        rate / count_flops(plan.recipe.data.eval_size).forward,
    )


def predict_gpu_speeds(plan: Plan, gpu: GpuDatasheet) -> Speeds:
    """Predict the speeds of GPUs with the roofline model, assuming that loading keeps up."""
    work = make_work(plan)
    eval_size = plan.recipe.data.eval_size
    devices = plan.world_size
    speeds = {
        image_size: predict_speed(gpu, work._replace(image_size=image_size))
        for image_size in {*plan.image_sizes, eval_size}
    }
    seconds = (ALL_REDUCE_FACTOR if devices > 1 else 1) * plan.passes / devices
    forward, training = plan.network.count_flops(eval_size)
    return Speeds(
        {
            image_size: (seconds / gpu_speed.images_per_second,)
            for image_size, gpu_speed in speeds.items()
        },
        devices * speeds[eval_size].images_per_second * training / forward,
        bottlenecks={image_size: gpu_speed.limit for image_size, gpu_speed in speeds.items()},
    )


def make_work(plan: Plan) -> Work:
    """Return a forward and backward pass of a run on one GPU, at its largest size."""
    precision = plan.recipe.precision
    return Work(
        plan.recipe.model.name,
        max(plan.image_sizes),
        plan.micro_batch_size,
        any(method.blurs for method in plan.new_stack()),
        precision.kernels == "auto" and precision.channels_last,
    )


def estimate_gpu_memory(plan: Plan) -> float:
    """Return the bytes that a run in bf16 or fp16 needs on each GPU, to some tens of percent."""
    optimizer, size = plan.recipe.optimizer, plan.network.parameters
    # weights, gradients and the optimizer's state
    copies = 2 + optimizer.state_copies + optimizer.scratch_copies
    copies += sum(method.extra_weights for method in plan.new_stack())
    teachers = sum(4 * t.network.parameters for t in plan.teachers if t.network)
    return teachers + count_memory(make_work(plan), plan.rank_size, size, copies)

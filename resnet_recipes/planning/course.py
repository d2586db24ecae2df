"""Collect the facts of a plan that determine its time and its GPU memory."""

from resnet_recipes.planning import roofline
from resnet_recipes.planning.estimate import Course, Estimate, Speeds, estimate
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.roofline import Work


def make_course(plan: Plan) -> Course:
    """Return the facts of a plan that determine the time of its run."""
    evaluation, steps = plan.recipe.evaluation, plan.steps_per_epoch
    evaluations = -(-plan.total_steps // plan.steps(evaluation.interval)) + (
        "eval_weights" in plan.hooks
    )
    images = tuple(
        plan.recipe.batch.global_size * min(steps, plan.total_steps - epoch * steps)
        for epoch in range(len(plan.sizes))
    )
    single_pass = [
        count * plan.network.operations(side).training
        for count, side in zip(images, plan.sizes, strict=True)
    ]
    return Course(
        plan.sizes,
        images,
        evaluations * (1 + evaluation.flip) * plan.facts.eval_examples,
        plan.recipe.data.eval_size,
        sum(plan.flops) / sum(single_pass),
        plan.network,
        make_work(plan),
        plan.world_size,
        -(-plan.total_steps // plan.steps(plan.recipe.checkpoint.interval)) + 1,
    )


def estimate_run(plan: Plan, speeds: Speeds) -> Estimate:
    """Estimate the time of a planned run at these speeds."""
    return estimate(make_course(plan), speeds)


def estimate_gpu_memory(plan: Plan) -> float:
    """Return the bytes that a run in bf16 or fp16 needs on each GPU, to some tens of percent."""
    # weights, gradients and optimizer state
    optimizer = plan.recipe.optimizer
    copies = 2 + optimizer.state_copies + optimizer.scratch_copies
    copies += sum(method.extra_weights for method in plan.new_stack())
    networks = [teacher.network for teacher in plan.teachers if teacher.network]
    teachers = sum(4 * network.parameters for network in networks)
    return teachers + roofline.count_memory(
        make_work(plan), plan.rank_size, plan.network.parameters, copies
    )


def make_work(plan: Plan) -> Work:
    """Return the work of a forward and backward pass on one GPU, at the largest image size."""
    precision = plan.recipe.precision
    return Work(
        plan.recipe.model.name,
        max(plan.sizes),
        plan.bn_size,
        any(method.blurs for method in plan.new_stack()),
        precision.kernels == "auto" and precision.channels_last,
    )

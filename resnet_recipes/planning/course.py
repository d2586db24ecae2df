"""What a prediction has to know of a plan."""

from resnet_recipes.estimating import roofline
from resnet_recipes.estimating.estimate import Course, Estimate, Speeds, estimate
from resnet_recipes.estimating.roofline import Work
from resnet_recipes.planning.plan import Plan


def course_of(plan: Plan) -> Course:
    """Return the facts of a plan that the time of its run depends on."""
    evaluation, steps = plan.recipe.evaluation, plan.steps_per_epoch
    evaluations = -(-plan.total_steps // plan.steps(evaluation.interval)) + (
        "eval_weights" in plan.hooks
    )
    images = tuple(
        plan.recipe.batch.global_size * min(steps, plan.total_steps - epoch * steps)
        for epoch in range(len(plan.sizes))
    )
    once = [
        count * plan.network.operations(side).training
        for count, side in zip(images, plan.sizes, strict=True)
    ]
    return Course(
        plan.sizes,
        images,
        evaluations * (1 + evaluation.flip) * plan.facts.eval_examples,
        plan.recipe.data.eval_size,
        sum(plan.flops) / sum(once),
        plan.network,
        work_of(plan),
        plan.world_size,
        -(-plan.total_steps // plan.steps(plan.recipe.checkpoint.interval)) + 1,
    )


def time_of(plan: Plan, speeds: Speeds) -> Estimate:
    """Return how long the run of a plan takes at these speeds."""
    return estimate(course_of(plan), speeds)


def gpu_memory(plan: Plan) -> float:
    """Return the bytes that a run in bf16 or fp16 needs on each GPU, to some tens of percent."""
    # weights, gradients, what the optimizer keeps
    optimizer = plan.recipe.optimizer
    copies = 2 + optimizer.state_copies + optimizer.scratch_copies
    copies += sum(method.extra_weights for method in plan.new_stack())
    teachers = sum(4 * one.network.parameters for one in plan.teachers if one.network)
    return teachers + roofline.memory(
        work_of(plan), plan.rank_size, plan.network.parameters, copies
    )


def work_of(plan: Plan) -> Work:
    """Return a forward and backward pass of a run on one GPU, at its largest size."""
    precision = plan.recipe.precision
    return Work(
        plan.recipe.model.name,
        max(plan.sizes),
        plan.bn_size,
        any(method.blurs for method in plan.new_stack()),
        precision.kernels == "auto" and precision.channels_last,
    )

"""The time of a planned run, from the speeds that were measured on its machine."""

from dataclasses import replace

from resnet_recipes.measure.estimate import Estimate, Speeds, estimate
from resnet_recipes.planning.plan import Plan


def estimate_for(plan: Plan, speeds: Speeds) -> Estimate:
    """Return how long the run of a plan takes at these speeds."""
    evaluations = -(-plan.total_steps // plan.steps(plan.recipe.evaluation.interval)) + (
        "eval_weights" in plan.hooks
    )
    passes = 1 + plan.recipe.evaluation.flip  # of an image, and of its mirror image
    result = estimate(
        plan.sizes,
        plan.steps_per_epoch,
        plan.recipe.batch.global_size,
        evaluations * passes * plan.facts.eval_examples,
        speeds,
    )
    # a run may end within an epoch
    share = plan.total_steps / (plan.steps_per_epoch * len(plan.sizes))
    return replace(
        result,
        phases=tuple(
            replace(
                phase, low=phase.low * share, minutes=phase.minutes * share, high=phase.high * share
            )
            for phase in result.phases
        ),
    )

"""How long a run takes on a CPU: an order of magnitude, guessed from its arithmetic without measuring."""

from resnet_recipes.config import enabled
from resnet_recipes.plan import Plan

#: Billions of multiply-adds of a forward pass on 224 pixels (torchvision, "GFLOPS" of the pretrained weights).
BILLIONS = {"resnet18": 1.81, "resnet34": 3.66, "resnet50": 4.09, "resnet101": 7.80, "resnet152": 11.51}

#: Billions of multiply-adds a second of one CPU core; two cores reach 17 in this project's demo and 29 on CIFAR-10.
PER_CORE = 12


def cpu_seconds(plan: Plan, cores: int) -> float:
    """Return the seconds of all forward and backward passes of a run; a backward pass counts as two forward passes."""
    shares = sum((side / 224) ** 2 for side in plan.sizes) / len(plan.sizes)
    images = plan.total_steps * plan.recipe.batch.global_size
    sam = enabled(plan.recipe.methods).get("sam")
    passes = 3 * (1 + 1 / sam.interval if sam else 1)
    return images * shares * passes * BILLIONS[plan.recipe.model.name] / (PER_CORE * cores)


def roughly(seconds: float) -> str:
    """Return a length of time to one digit or two, in the largest unit that it fills twice: "11 weeks"."""
    units = (("years", 365.25 * 86400), ("weeks", 7 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60))
    name, unit = next((item for item in units if seconds >= 2 * item[1]), units[-1])
    number = seconds / unit
    return f"{max(1, round(number)) if number < 100 else round(number, -1):,.0f} {name if number >= 1.5 else name[:-1]}"

"""The options of `optimizer` and `schedule`.

Each is a section of a packaged recipe, and names its source.
"""

import pytest
import torch

from resnet_recipes.methods.optimizers import OPTIMIZERS
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import GROUPS, find_packaged_folder
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows

OPTIONS = [
    (group, path.stem)
    for group in GROUPS
    for path in sorted(find_packaged_folder().glob(f"{group}/*"))
]

#: An option, its source recipe, and a recipe that uses another option.
ORIGINS = parse_rows(
    """
optimizer | decoupled_sgdw | mild | timm_a2
optimizer | sgd | nvidia_dle | hot
optimizer | lamb | timm_a2 | hot
optimizer | lars | nvidia_mlperf_pt | hot
schedule | cosine | mild | ffcv_rn50
schedule | linear | ffcv_rn50 | hot
schedule | polynomial | nvidia_mlperf_pt | hot
"""
)


def read_section(group: str, recipe: str, *arguments: str) -> object:
    return getattr(compose(recipe, arguments, needs_data=False).recipe, group)


@pytest.mark.parametrize(("group", "name", "origin", "other"), ORIGINS)
def test_option_equals_section_of_its_recipe(group, name, origin, other):
    assert read_section(group, other, f"{group}={name}") == read_section(group, origin)
    head = (find_packaged_folder() / group / f"{name}.yaml").read_text().splitlines()[0]
    assert origin in head


def test_every_optimizer_is_an_option():
    assert [name for group, name in OPTIONS if group == "optimizer"] == sorted(
        optimizer.name for optimizer in OPTIMIZERS
    )


def test_adamw_option_uses_torch_defaults():
    ours = read_section("optimizer", "mild", "optimizer=adamw")
    theirs = torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).defaults
    assert {name: getattr(ours, name) for name in ("lr", "betas", "eps", "weight_decay")} == {
        name: theirs[name] for name in ("lr", "betas", "eps", "weight_decay")
    }


@pytest.mark.parametrize("epochs", [9, 36, 90, 270])
def test_step_option_divides_lr_after_each_third(epochs):
    """As StepLR with a step of 30 of 90 epochs: lr is divided by ten after each third."""
    plan = plan_imagenet(f"mild schedule=step epochs={epochs} lr=1")
    third = epochs // 3
    rates = [plan.lr_at(epoch * plan.steps_per_epoch) for epoch in range(epochs)]
    assert rates == pytest.approx([0.1 ** (epoch // third) for epoch in range(epochs)])


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_every_option_can_be_planned(group, name):
    assert plan_imagenet(f"hot {group}={name} epochs=12").total_steps > 0

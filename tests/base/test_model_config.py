"""Names, widths and frozen parts of networks are validated."""

import pytest
from torchvision import models

from resnet_recipes.base.model_config import ModelConfig
from tests.shared.tables import parse_rows, parse_settings


def test_default_initialization_is_accepted_only_for_library_resnets():
    for name in models.list_models(module=models):
        is_resnet = models.get_model_builder(name).__module__.endswith(".resnet")
        assert is_resnet == (not list(ModelConfig(name=f"torchvision:{name}").problems())), name


@pytest.mark.parametrize(
    ("settings", "message"),
    parse_rows(
        """
width=0.3 | a multiple of 0.125
width=0.0 | a multiple of 0.125
in_channels=4 | valid: 3, 1
in_channels=1 name=timm:resnet18 | model.in_channels=3
stem=tiny | valid: standard, small
stem=small name=timm:resnet18 | model.stem=standard
width=2.0 name=torchvision:resnet18 | model.width=1.0
"""
    ),
)
def test_invalid_stem_or_width_is_rejected(settings, message):
    assert message in "".join(map(str, ModelConfig(**parse_settings(settings)).problems()))


@pytest.mark.parametrize(
    ("freeze", "clauses"),
    [
        ("backbone", []),
        ("layer2", ["is a part of a ResNet; other networks freeze all but the classifier"]),
        ("all", []),  # not a valid value, which another check reports
    ],
)
def test_only_resnets_can_freeze_single_parts(freeze, clauses):
    config = ModelConfig(name="timm:vit_tiny_patch16_224", weights="w.pth", freeze=freeze)
    problems = [problem for problem in config.problems() if problem.key == "freeze"]
    assert [problem.clause for problem in problems if not problem.valid] == clauses


def test_unknown_timm_network_is_suggested_with_its_weights():
    for name, tag in (("efficientnet_lite0", ""), ("timm/efficientnet_lite0.ra_in1k", ".ra_in1k")):
        (problem,) = ModelConfig(name=name, weights="torchvision", init="library").problems()
        timm_name = "timm:efficientnet_lite0"
        assert problem.fix == f"model.name={timm_name} model.weights={timm_name}{tag}"

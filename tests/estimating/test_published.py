"""The published results, and that recipes agree with them."""

from pathlib import Path

import pytest
import yaml

from resnet_recipes.estimating.published import CONTRADICTIONS, published

RECIPES = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
}
CLAIMS = [
    (name, result) for name, recipe in RECIPES.items() for result in recipe.get("published") or []
]


@pytest.mark.parametrize(
    ("recipe", "claim"), CLAIMS, ids=[f"{name}-{claim['top1']}" for name, claim in CLAIMS]
)
def test_what_a_recipe_claims_is_in_the_published_results(recipe, claim):
    def agrees(result) -> bool:
        return (
            result.recipe == recipe
            and "prototype" not in result.note  # a claim is of the recipe as packaged
            and result.top1_percent == claim["top1"]
            and all(claim.get(key) in (None, getattr(result, key)) for key in ("epochs", "minutes"))
            and claim.get("hardware", "") in ("", result.hardware)
        )

    assert any(map(agrees, published())), claim


def test_every_result_names_its_source_and_is_possible():
    for result in published():
        assert result.source
        assert result.top1_percent is None or 70 < result.top1_percent < 82
        assert result.top1_percent or result.images_per_second or result.note
        assert result.minutes is None or (
            0.1 < result.minutes < 2000
            and result.clock in ("papers", "mlperf", "wall", "dawnbench")
        )
        assert result.epochs is None or 16 <= result.epochs <= 810


def test_reported_contradictions_concern_listed_results():
    values = {f"{result.top1_percent:g}" for result in published() if result.top1_percent} | {
        f"{result.minutes:g}" for result in published() if result.minutes
    }
    for said in ("78.4", "60.4", "81.03", "980", "880", "334", "76.33", "23.8", "25.3"):
        assert said in values
        assert any(said in sentence for sentence in CONTRADICTIONS)

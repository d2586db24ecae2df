"""Published results match the recipes; results between their durations are interpolated."""

import pytest
import yaml

from resnet_recipes.planning.published_results import (
    INTERPOLATION_ERROR,
    estimate_accuracy,
    find_epochs_for_accuracy,
    read_published,
)
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import Library, find_packaged_folder
from resnet_recipes.run_folder.facts import Published

CLAIMS = [
    (path.stem, result)
    for path in sorted(find_packaged_folder().glob("*.yaml"))
    for result in yaml.safe_load(path.read_text()).get("published") or []
]


def test_recipe_claims_name_source_and_hardware():
    assert [claim for _, claim in CLAIMS if not claim["source"]] == []
    assert [claim for _, claim in CLAIMS if "minutes" in claim and not claim["hardware"]] == []


@pytest.mark.parametrize(("recipe", "claim"), CLAIMS)
def test_recipe_claims_are_published_results(recipe, claim):
    def is_equal(result) -> bool:
        return (
            result.recipe == recipe
            and result.top1_percent == claim["top1"]
            and all(claim.get(key) in (None, getattr(result, key)) for key in ("epochs", "minutes"))
            and claim.get("hardware", "") in ("", result.hardware)
            and ("minutes" not in claim or claim.get("clock", "steady").lower() == result.clock)
        )

    assert any(map(is_equal, read_published())), claim


def test_published_results_name_source_and_are_possible():
    for result in read_published():
        assert result.source
        assert result.top1_percent or result.images_per_second or result.note
        assert result.minutes is None or result.clock in ("steady", "mlperf", "wall", "dawnbench")
        for figure, least, most in (
            (result.top1_percent, 70, 82),
            (result.minutes, 0.1, 2000),
            (result.epochs, 16, 810),
        ):
            assert figure is None or least <= figure <= most


def test_interpolation_error_is_the_largest_of_omitted_rows():
    listed = {(result.recipe, result.epochs, result.top1_percent) for result in read_published()}
    errors = []
    for recipe in Library().list_names():
        results = compose(recipe, needs_data=False).recipe.published
        durations = sorted({result.epochs for result in results if result.epochs})
        for omitted in durations[1:-1]:
            rest = [result for result in results if result.epochs != omitted]
            (top1,) = {result.top1 for result in results if result.epochs == omitted}
            assert (recipe, omitted, top1) in listed
            errors.append(estimate_accuracy(rest, omitted).top1 - top1)
    assert len(errors) >= 6
    assert max(map(abs, errors)) == pytest.approx(INTERPOLATION_ERROR, abs=0.005)


def test_estimate_accuracy_interpolates_but_never_extrapolates():
    results = [Published(76.0, 30), Published(75.0, 30), Published(78.0, 60), Published(79.0)]
    assert estimate_accuracy(results, 30) == (76.0, "published")
    assert estimate_accuracy(results, 40).top1 == pytest.approx(77.0)  # half way from 1/30 to 1/60
    assert str(INTERPOLATION_ERROR) in estimate_accuracy(results, 40).source
    assert (
        estimate_accuracy(results, 29)
        is estimate_accuracy(results, 61)
        is estimate_accuracy([], 30)
        is None
    )
    assert [find_epochs_for_accuracy(results, top1, ()) for top1 in (70, 76.9, 77.01, 78.1)] == [
        30,
        39,
        41,
        None,
    ]
    assert find_epochs_for_accuracy([], 70, ()) is None

"""Published results are possible; results between their durations are interpolated."""

import csv
from pathlib import Path

import pytest

from resnet_recipes.planning.published_results import (
    INTERPOLATION_ERROR,
    estimate_accuracy,
    find_epochs_for_accuracy,
    list_published_results,
)
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import Library
from resnet_recipes.run_folder.facts import PublishedResult


def test_published_results_name_source_and_are_possible():
    results = list_published_results()
    assert {"mild", "hot"} < {result["recipe"] for result in results}
    for result in results:
        assert result["source"]
        assert result["hardware"] or not result["minutes"]
        assert result["clock"] in ("", "MLPerf", "DAWNBench")
        for key, least, most in (("top1", 70, 82), ("minutes", 0.1, 2000), ("epochs", 16, 810)):
            assert result[key] is None or least <= result[key] <= most


def test_table_of_published_results_contains_those_of_recipes():
    path = Path(__file__).parents[2] / "benchmarks" / "published_results.csv"
    keys = ("top1_percent", "epochs", "minutes")
    with path.open(encoding="utf-8", newline="") as file:
        rows = {
            (row["recipe"], *[float(row[key] or 0) for key in keys]) for row in csv.DictReader(file)
        }
    for result in list_published_results():
        figures = [result[key] or 0 for key in ("top1", "epochs", "minutes")]
        assert (result["recipe"], *figures) in rows


def test_interpolation_error_is_the_largest_of_omitted_rows():
    errors = []
    for recipe in Library().list_names():
        results = compose(recipe, needs_data=False).recipe.published
        durations = sorted({result.epochs for result in results if result.epochs})
        for omitted in durations[1:-1]:
            rest = [result for result in results if result.epochs != omitted]
            (top1,) = {result.top1 for result in results if result.epochs == omitted}
            errors.append(estimate_accuracy(rest, omitted).top1 - top1)
    assert len(errors) >= 6
    assert max(map(abs, errors)) == pytest.approx(INTERPOLATION_ERROR, abs=0.005)


def test_estimate_accuracy_interpolates_but_never_extrapolates():
    results = [
        PublishedResult(76.0, 30),
        PublishedResult(75.0, 30),
        PublishedResult(78.0, 60),
        PublishedResult(79.0),
    ]
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

"""Accuracies between published lengths, against each published one that is left out."""

import pytest

from resnet_recipes.estimating.accuracy import ERROR, of_length, shortest
from resnet_recipes.estimating.published import published
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import Library
from resnet_recipes.run_folder.facts import Published


def curves() -> dict[str, list[Published]]:
    """Return what was published for each packaged recipe, as its file has it."""
    return {name: compose(name, needs_data=False).recipe.published for name in Library().names()}


def test_the_error_is_the_largest_of_leaving_each_published_result_out():
    listed = {(one.recipe, one.epochs, one.top1_percent) for one in published()}
    errors = []
    for recipe, results in curves().items():
        lengths = sorted({one.epochs for one in results if one.epochs})
        for left_out in lengths[1:-1]:
            rest = [one for one in results if one.epochs != left_out]
            (known,) = {one.top1 for one in results if one.epochs == left_out}
            assert (recipe, left_out, known) in listed
            errors.append(of_length(rest, left_out).top1 - known)
    assert len(errors) >= 6
    assert max(map(abs, errors)) == pytest.approx(ERROR, abs=0.005)


def test_a_published_length_has_its_own_accuracy_and_no_other_is_promised_outside():
    results = [Published(76.0, 30), Published(75.0, 30), Published(78.0, 60), Published(79.0)]
    assert of_length(results, 30) == (76.0, "published")
    assert of_length(results, 40).top1 == pytest.approx(77.0)  # half way from 1/30 to 1/60
    assert str(ERROR) in of_length(results, 40).source
    assert of_length(results, 29) is of_length(results, 61) is of_length([], 30) is None
    assert [shortest(results, top1) for top1 in (70, 76.9, 77.01, 78.1)] == [30, 39, 41, None]
    assert shortest([], 70) is None

"""Compare two networks on the same images, against counts and textbook values."""

from itertools import product
from math import comb

import pytest

from resnet_recipes.report.paired import PairedVerdict, accuracy_interval
from resnet_recipes.run_folder.hits import Hits


def test_accuracy_interval_solves_the_score_equation():
    """The ends of the Wilson interval are 1.96 standard errors from this count."""
    for correct, images in ((70, 100), (3, 40), (0, 9), (153, 153)):
        for end in accuracy_interval(correct, images):
            share = end / 100
            away = (correct / images - share) ** 2
            assert away == pytest.approx(1.959964**2 * share * (1 - share) / images, abs=1e-9)


def test_paired_counts_images_that_one_network_gets():
    first, second = Hits("d", "110100"), Hits("d", "100011")
    verdict = PairedVerdict.of(first, second)
    assert verdict == (6, 2, 2)
    assert verdict.points == 0
    assert verdict.images_to_settle is None
    assert PairedVerdict.of(second, Hits("d", "100000")).points == pytest.approx(100 * 2 / 6)


@pytest.mark.parametrize("other", [Hits("e", "1100"), Hits("d", "110")])
def test_paired_other_images_have_no_verdict(other):
    assert PairedVerdict.of(Hits("d", "1100"), other) is None


def test_paired_p_counts_coin_throws():
    for first, second in product(range(8), repeat=2):
        throws = first + second
        tail = sum(comb(throws, k) for k in range(min(first, second) + 1))
        expected = min(1.0, 2 * tail / 2**throws)
        assert PairedVerdict(100, first, second).p == pytest.approx(expected)


def test_paired_interval_matches_its_formula():
    verdict = PairedVerdict(153, 9, 2)
    first, second = 10 / 155, 3 / 155
    half = 1.959964 * ((first + second - (first - second) ** 2) / 155) ** 0.5
    expected = 100 * (first - second - half), 100 * (first - second + half)
    assert verdict.interval == pytest.approx(expected)


def test_paired_verdict_settles_where_p_is_small():
    assert PairedVerdict(153, 15, 2).is_settled
    assert not PairedVerdict(153, 9, 3).is_settled


def test_paired_images_to_settle_give_that_many_differences():
    """With that many images in the same proportions, the p value is well below 5%."""
    verdict = PairedVerdict(153, 9, 3)
    images = verdict.images_to_settle
    assert 153 < images < 1000
    scale = images / 153
    assert PairedVerdict(images, round(9 * scale), round(3 * scale)).p < 0.02

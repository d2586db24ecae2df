"""Compare networks on the same images, against counts and textbook values."""

from random import Random
from statistics import stdev

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


def count_pairs(images: int, first_only: int, second_only: int) -> PairedVerdict:
    """Compare two runs; all other images are classified correctly by both."""
    rest = "1" * (images - first_only - second_only)
    first = Hits("d", "1" * first_only + "0" * second_only + rest)
    second = Hits("d", "0" * first_only + "1" * second_only + rest)
    return PairedVerdict.of([first], [second])


@pytest.mark.parametrize(
    "groups",
    [
        (["d1100"], ["e1100"]),
        (["d1100"], ["d110"]),
        (["d1100", "d1000"], ["d1100", "e1100"]),
        (["d1100"], []),
        ([], []),
    ],
)
def test_paired_other_images_have_no_verdict(groups):
    first, second = ([Hits(text[0], text[1:]) for text in group] for group in groups)
    assert PairedVerdict.of(first, second) is None


def test_paired_interval_of_two_runs_matches_its_formula():
    verdict = count_pairs(153, 9, 2)
    assert verdict.points == pytest.approx(100 * 7 / 153)
    first, second = 10 / 155, 3 / 155
    half = 100 * 1.959964 * ((first + second - (first - second) ** 2) / 155) ** 0.5
    expected = verdict.points - half, verdict.points + half
    assert verdict.interval == pytest.approx(expected)
    assert verdict.seed_variance is None


def test_paired_interval_of_seeds_is_wider():
    """Seeds of 90% and 94% are 4 points above two of 88%, and only the first two vary."""
    first = [Hits("d", "1" * count + "0" * (100 - count)) for count in (90, 94)]
    second = [Hits("d", "1" * 88 + "0" * 12)] * 2
    verdict = PairedVerdict.of(first, second)
    assert verdict.points == pytest.approx(4)
    assert verdict.seed_variance == pytest.approx(stdev((90, 94)) ** 2 / 2)
    # images: 2 gain 1, 4 gain 0.5, and one more gains and loses 1
    total, squares = 4, 2 + 4 * 0.25 + 2
    variance = 1e4 * (squares / 102 - (total / 102) ** 2) / 102
    half = 1.959964 * (variance + verdict.seed_variance) ** 0.5
    assert verdict.interval == pytest.approx((4 - half, 4 + half))


def test_paired_equal_seeds_do_not_settle_a_difference_of_one_image():
    """The seeds of both groups agree by chance, but the images do not."""
    first = [Hits("d", "1" * 138 + "0" * 15)] * 2
    second = [Hits("d", "1" * 137 + "0" * 16)] * 2
    verdict = PairedVerdict.of(first, second)
    assert verdict.seed_variance == 0
    assert not verdict.is_settled


def test_paired_interval_covers_the_difference():
    """It does so in 95% of samples from networks of 80% and 70%, within 4 standard errors."""
    random, covered = Random(0), 0
    for _ in range(500):
        flags = ["".join("01"[random.random() < rate] for _ in range(60)) for rate in (0.8, 0.7)]
        low, high = PairedVerdict.of(*([Hits("d", one)] for one in flags)).interval
        covered += low <= 10 <= high
    assert abs(covered / 500 - 0.95) < 4 * (0.95 * 0.05 / 500) ** 0.5


def test_paired_verdict_settles_where_interval_excludes_zero():
    assert count_pairs(153, 15, 2).is_settled
    assert count_pairs(153, 2, 15).is_settled
    assert not count_pairs(153, 9, 3).is_settled


def test_paired_images_to_settle_give_that_many_differences():
    """With that many images in the same proportions, 0 is 2.8 standard errors away."""
    verdict = count_pairs(153, 9, 3)
    images = round(verdict.images_to_settle)
    assert 153 < images < 1000
    scale = images / 153
    larger = count_pairs(images, round(9 * scale), round(3 * scale))
    assert larger.points / larger.image_variance**0.5 == pytest.approx(2.8, abs=0.1)
    assert count_pairs(153, 3, 3).images_to_settle is None


def test_paired_seeds_to_settle_divide_the_seed_variance():
    verdict = PairedVerdict(1000, 2.0, image_variance=0.1, seed_variance=1.6)
    times = verdict.seeds_to_settle
    assert 2.0 / (0.1 + 1.6 / times) ** 0.5 == pytest.approx(2.8016, abs=1e-3)
    assert verdict.images_to_settle is None  # the seeds alone are too noisy
    noisy = verdict._replace(image_variance=1.0)
    assert noisy.seeds_to_settle is None

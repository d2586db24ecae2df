"""Compare networks on the same images, against counts and textbook values."""

from random import Random
from statistics import stdev

import pytest

from resnet_recipes.report.paired_difference import (
    PairedDifference,
    compute_accuracy_interval,
    describe_pair,
)
from resnet_recipes.run_folder.correct_images import CorrectImages
from tests.shared.tables import parse_values


def test_accuracy_interval_solves_the_score_equation():
    """The ends of the Wilson interval are 1.96 standard errors from this count."""
    for correct, images in ((70, 100), (3, 40), (0, 9), (153, 153)):
        for end in compute_accuracy_interval(correct, images):
            share = end / 100
            away = (correct / images - share) ** 2
            assert away == pytest.approx(1.959964**2 * share * (1 - share) / images, abs=1e-9)


def count_pairs(images: int, first_only: int, second_only: int) -> PairedDifference:
    """Compare two runs; all other images are classified correctly by both."""
    rest = "1" * (images - first_only - second_only)
    first = CorrectImages("d", "1" * first_only + "0" * second_only + rest)
    second = CorrectImages("d", "0" * first_only + "1" * second_only + rest)
    return PairedDifference.of([first], [second])


@pytest.mark.parametrize(
    "groups",
    [
        (["d1100"], ["e1100"]),
        (["d1100"], ["d110"]),
        (["d1100"], []),
        ([], []),
    ],
)
def test_paired_difference_needs_common_images(groups):
    first, second = ([CorrectImages(text[0], text[1:]) for text in group] for group in groups)
    assert PairedDifference.of(first, second) is None


def test_paired_interval_of_two_runs_matches_its_formula():
    difference = count_pairs(153, 9, 2)
    assert difference.points == pytest.approx(100 * 7 / 153)
    first, second = 10 / 155, 3 / 155
    half = 100 * 1.959964 * ((first + second - (first - second) ** 2) / 155) ** 0.5
    expected = difference.points - half, difference.points + half
    assert difference.interval == pytest.approx(expected)
    assert (difference.seed_variance, difference.freedom) == (0, 0)


def test_paired_interval_of_seeds_is_wider():
    """Two seeds of 90% and 94% against two of 88%: 4 points, and the pooled noise of four runs."""
    first = [CorrectImages("d", "1" * count + "0" * (100 - count)) for count in (90, 94)]
    second = [CorrectImages("d", "1" * 88 + "0" * 12)] * 2
    difference = PairedDifference.of(first, second)
    assert difference.points == pytest.approx(4)
    pooled = (stdev((90, 94)) ** 2 + 0) / 2
    assert difference.seed_variance == pytest.approx(pooled / 2 + pooled / 2)
    assert difference.freedom == 2
    # images: 2 gain 1, 4 gain 0.5, and one more gains and loses 1
    total, squares = 4, 2 + 4 * 0.25 + 2
    variance = 1e4 * (squares / 102 - (total / 102) ** 2) / 102
    deviation = (variance + difference.seed_variance) ** 0.5
    assert 2 * (1 + variance / difference.seed_variance) ** 2 == pytest.approx(9.364, abs=1e-3)
    half = 2.249 * deviation  # quantile of Student's t with 9.364 degrees of freedom
    assert difference.interval == pytest.approx((4 - half, 4 + half), rel=0.01)


@pytest.mark.parametrize(
    ("freedom", "quantile", "excess"),
    parse_values("""
1 | 12.706 | 0.40
2 | 4.303 | 0.05
3 | 3.182 | 0.02
10 | 2.228 | 0.01
"""),
)
def test_paired_quantile_matches_student_t(freedom, quantile, excess):
    difference = PairedDifference(10**6, 1.0, image_variance=0, seed_variance=1.0, freedom=freedom)
    assert 0 <= (difference.points - difference.interval[0]) / quantile - 1 < excess


def test_paired_single_run_uses_noise_of_other_group():
    """Seeds of 90% and 94% against one of 88%; a second run would halve its variance."""
    first = [CorrectImages("d", "1" * count + "0" * (100 - count)) for count in (90, 94)]
    difference = PairedDifference.of(first, [CorrectImages("d", "1" * 88 + "0" * 12)])
    assert difference.seed_variance == pytest.approx(stdev((90, 94)) ** 2 * (1 / 2 + 1))
    assert difference.freedom == 1


def test_paired_folds_count_as_one_set_of_images():
    """Parts of three and five images equal eight images; the seeds of a fold are its runs."""
    flags = ("11010110", "01000111", "10010010", "00011010")
    whole = PairedDifference.of([CorrectImages("d", flags[0])], [CorrectImages("d", flags[1])])

    def split(*runs: str) -> list[CorrectImages]:
        return [
            hits
            for run in runs
            for hits in (CorrectImages("a", run[:3]), CorrectImages("b", run[3:]))
        ]

    folds = PairedDifference.of(split(flags[0]), split(flags[1])[::-1])
    assert folds == pytest.approx(whole)
    assert folds.freedom == 0
    partial = PairedDifference.of(split(flags[0]), split(flags[1])[:1])
    assert partial == PairedDifference.of([CorrectImages("a", "110")], [CorrectImages("a", "010")])
    seeds = PairedDifference.of(split(*flags[:2]), split(*flags[2:]))
    parts = [
        stdev((one[part].count("1"), other[part].count("1"))) ** 2
        for part in (slice(3), slice(3, 8))
        for one, other in (flags[:2], flags[2:])
    ]
    assert seeds.freedom == 4
    assert seeds.seed_variance == pytest.approx(sum(parts) / 4 * 2 * (100 / 8) ** 2)


def test_paired_equal_seeds_do_not_settle_one_image():
    """The seeds of both groups agree by chance, but the images do not."""
    first = [CorrectImages("d", "1" * 138 + "0" * 15)] * 2
    second = [CorrectImages("d", "1" * 137 + "0" * 16)] * 2
    difference = PairedDifference.of(first, second)
    assert difference.seed_variance == 0
    low, high = difference.interval
    assert low < 0 < high


def test_paired_interval_covers_the_difference():
    """It does so in 95% of samples from networks of 80% and 70%, within 4 standard errors."""
    random, covered = Random(0), 0
    for _ in range(500):
        flags = ["".join("01"[random.random() < rate] for _ in range(60)) for rate in (0.8, 0.7)]
        low, high = PairedDifference.of(*([CorrectImages("d", text)] for text in flags)).interval
        covered += low <= 10 <= high
    assert abs(covered / 500 - 0.95) < 4 * (0.95 * 0.05 / 500) ** 0.5


def test_paired_interval_covers_difference_of_noisy_seeds():
    """Two seeds that vary by 3 points decide; with normal quantiles, 81% of intervals cover."""
    random, covered = Random(0), 0
    for _ in range(300):
        rates = [rate + random.gauss(0, 0.03) for rate in (0.8, 0.8, 0.7, 0.7)]
        runs = [
            CorrectImages("d", "".join("01"[random.random() < rate] for _ in range(600)))
            for rate in rates
        ]
        low, high = PairedDifference.of(runs[:2], runs[2:]).interval
        covered += low <= 10 <= high
    assert 0.92 < covered / 300 < 0.99


def test_paired_difference_settles_if_interval_excludes_zero():
    assert count_pairs(153, 15, 2).interval.low > 0
    assert count_pairs(153, 2, 15).interval.high < 0
    low, high = count_pairs(153, 9, 3).interval
    assert low < 0 < high


def test_paired_interval_has_possible_differences_only():
    difference = PairedDifference(100, 30.0, image_variance=1.0, seed_variance=900.0, freedom=1)
    assert difference.interval == (-100, 100)


def test_paired_seeds_to_settle_are_a_whole_number():
    difference = PairedDifference(100, 30.0, 1.0, seed_variance=100.0, freedom=1, seeds=2)
    assert difference.multiply_to_settle("seeds") * 2 == pytest.approx(5.3, abs=0.05)
    text = " ".join(describe_pair("A vs. B", difference))
    assert "About 6 seeds of each would settle" in text


def test_paired_images_to_settle_give_a_settled_difference():
    """With that many images in the same proportions, 0 is 2.8 standard errors away."""
    scale = count_pairs(153, 9, 3).multiply_to_settle("images")
    assert 1 < scale < 6
    larger = count_pairs(round(153 * scale), round(9 * scale), round(3 * scale))
    assert larger.points / larger.image_variance**0.5 == pytest.approx(2.8, abs=0.3)
    assert count_pairs(153, 3, 3).multiply_to_settle("images") is None


def test_paired_seeds_to_settle_divide_the_seed_variance():
    difference = PairedDifference(1000, 2.0, image_variance=0.1, seed_variance=1.6, freedom=100)
    times = difference.multiply_to_settle("seeds")
    assert 2.0 / (0.1 + 1.6 / times) ** 0.5 == pytest.approx(2.8, rel=0.05)
    few = difference._replace(freedom=2).multiply_to_settle("seeds")
    assert times < few < 1.5 * times  # more seeds also make the quantile smaller
    assert difference.multiply_to_settle("images") is None  # the seeds alone are too noisy
    noisy = difference._replace(image_variance=1.0)
    assert noisy.multiply_to_settle("seeds") is None

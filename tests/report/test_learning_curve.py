"""The gain from more images, predicted from runs on fractions of them."""

import json
import math
import random

import numpy as np
import pytest

from resnet_recipes.report.comparison import group_seeds, read_all
from resnet_recipes.report.learning_curve import describe_learning_curves, fit_gain
from tests.shared.run_folders import create_run_folder

SIZES = (100, 300, 1000, 3000)


def get_gain(errors, variance=0.04):
    gain, error = fit_gain(np.array(SIZES), 100 - np.array(errors), np.full(4, variance))
    return gain - error, gain + error


@pytest.mark.parametrize(("floor", "factor", "power"), [(0, 90, 0.3), (4, 100, 0.5), (2, 400, 1)])
def test_gain_of_exact_curve_is_within_interval(floor, factor, power):
    low, high = get_gain([floor + factor * n**-power for n in SIZES])
    truth = factor * (SIZES[-1] ** -power - (2 * SIZES[-1]) ** -power)
    assert low <= truth <= high
    assert (low + high) / 2 == pytest.approx(truth, abs=0.35)


def test_gain_interval_covers_true_gain_in_noise():
    rng = random.Random(0)
    deviation = 0.5
    covered = 0
    truth = 60 * (3000**-0.4 - 6000**-0.4)
    for _ in range(300):
        low, high = get_gain([3 + 60 * n**-0.4 + rng.gauss(0, deviation) for n in SIZES], 0.25)
        covered += low <= truth <= high
    assert covered >= 0.9 * 300


@pytest.mark.parametrize("tops", [(60, 79, 90), (60, 90, 70)])
def test_gain_is_the_weighted_mean_over_powers(tops):
    """A power fits the first curve; none fits the second, so its misfit widens the interval."""
    images = (100, 300, 1000)
    weights = (1 / 6, 1 / 4, 1 / 2)
    fits = []
    errors = [100 - top1 for top1 in tops]
    for step in range(17):
        x = [n ** -(0.2 + step / 20) for n in images]
        middle, level = (np.average(values, weights=weights) for values in (x, errors))
        points = [*zip(weights, x, errors, strict=True)]
        spread = sum(w * (one - middle) ** 2 for w, one, _ in points)
        slope = sum(w * (one - middle) * (y - level) for w, one, y in points) / spread
        misfit = sum(w * (y - level - slope * (one - middle)) ** 2 for w, one, y in points)
        fall = x[-1] - 2000 ** -(0.2 + step / 20)
        fits.append((slope * fall, fall**2 / spread, misfit))
    best = min(misfit for *_, misfit in fits)
    odds = [math.exp((best - misfit) / 2) for *_, misfit in fits]
    mean = np.average([gain for gain, *_ in fits], weights=odds)
    total = np.average([noise + (gain - mean) ** 2 for gain, noise, _ in fits], weights=odds)
    expected = mean, 1.959964 * math.sqrt(total * max(1.0, best))
    gain = fit_gain(np.array(images), np.array(tops), 1 / np.array(weights))
    assert gain == pytest.approx(expected, rel=1e-6)


def test_flat_or_rising_errors_predict_no_positive_gain():
    low, high = get_gain((5, 5, 5, 5))
    assert low < 0 < high == pytest.approx(-low)
    assert sum(get_gain((4, 5, 6, 7))) < 0


def test_noisier_accuracies_widen_the_interval():
    errors = [4 + 100 * n**-0.5 for n in SIZES]
    narrow, wide = (get_gain(errors, variance) for variance in (0.01, 4.0))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    bent = get_gain([9, 4, 9, 4], 0.01)  # no power law fits, so the noise was larger
    assert bent[1] - bent[0] > narrow[1] - narrow[0]


@pytest.fixture
def create_fractions(tmp_path):
    def create(tops, duration="90ep", digest="a"):
        folders = []
        for (share, seed), top1 in tops.items():
            settings = {"data": {"root": "/data/pets", "share": share}, "max_duration": duration}
            name = f"{share}-{seed}-{len(list(tmp_path.iterdir()))}"
            folder = create_run_folder(tmp_path, name, top1=top1, seed=seed, config=settings)
            images = {"train_examples": int(1000 * share), "eval_examples": 400}
            (folder / "data.json").write_text(json.dumps(images | {"eval_digest": digest}))
            folders.append(folder)
        return folders

    return create


def describe_curves(folders):
    """Return the sentences of the report about runs on fractions."""
    return list(describe_learning_curves(group_seeds(read_all(folders))))


@pytest.fixture
def fit_fractions(create_fractions):
    return lambda *runs, **settings: describe_curves(create_fractions(*runs, **settings))


def describe_gain(tops, variances, images=(100, 300, 1000)):
    gain, error = fit_gain(*map(np.array, (images, tops, variances)))
    return (
        f"gain about {gain:+.2f} points, 95% interval {gain - error:+.2f} to {gain + error:+.2f}."
    )


def test_learning_curve_averages_seeds_and_sorts_sizes(fit_fractions):
    (text,) = fit_fractions({(1.0, 1): 90, (0.1, 1): 60, (0.3, 1): 78, (0.3, 2): 82})
    assert "100 to 1,000 training images: 60.00% to 90.00% top-1." in text
    wrong = (np.array([160, 80, 40]) + 1) / 402  # error with one more image right and one wrong
    variances = wrong * (1 - wrong) * 1e4 / 400 + (0, 8 / 2, 0)
    assert describe_gain((60, 80, 90), variances) in text


def test_single_run_of_a_size_excludes_seed_noise(fit_fractions):
    tops = {(share, seed): 90 * share**0.1 for share in (0.1, 0.3, 1.0) for seed in (1, 2)}
    (text,) = fit_fractions(tops)
    assert "seed noise" not in text
    (text,) = fit_fractions({key: top1 for key, top1 in tops.items() if key != (0.3, 2)})
    assert "excludes seed noise: a size has only one run" in text


@pytest.mark.parametrize("change", [{}, {"duration": "30ep"}, {"digest": "b"}])
def test_learning_curve_needs_three_sizes_of_equal_runs(change, create_fractions):
    two = create_fractions({(1.0, 1): 90, (0.3, 1): 80})
    third = create_fractions({(0.1, 1): 60}, **change)
    assert not describe_curves(two)
    assert bool(describe_curves(two + third)) == (not change)


def test_fractions_with_the_same_images_are_one_size(fit_fractions):
    tops = {(1.0, 1): 90, (0.3, 1): 80, (0.3001, 1): 81}
    assert not fit_fractions(tops)
    (text,) = fit_fractions(tops | {(0.1, 1): 60})
    wrong = (np.array([160, 80, 76, 40]) + 1) / 402
    variances = wrong * (1 - wrong) * 1e4 / 400
    assert describe_gain((60, 80, 81, 90), variances, (100, 300, 300, 1000)) in text


def test_price_of_more_images_follows_duration_unit(fit_fractions):
    tops = {(1.0, 1): 90, (0.3, 1): 80, (0.1, 1): 60}
    (longer,) = fit_fractions(tops)
    (same,) = fit_fractions(tops, duration="400ba")
    assert "1,000 more photographs, and training takes 2,500 PFLOPs (now 1,250)." in longer
    assert "1,000 more photographs, and training takes 1,250 PFLOPs (now 1,250)." in same

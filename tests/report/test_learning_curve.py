"""What more images would bring, from runs on fractions of them."""

import json
import random

import pytest

from resnet_recipes.report.comparison import group_seeds, read_all
from resnet_recipes.report.learning_curve import CurvePoint, LearningCurve, find_learning_curves
from tests.run_folders import run_folder

SIZES = (100, 300, 1000, 3000)


def curve_of(errors, variance=0.04, sizes=SIZES):
    points = [CurvePoint(n, 100 - e, variance, 2.0) for n, e in zip(sizes, errors, strict=True)]
    return LearningCurve(points, is_longer=True)


@pytest.mark.parametrize(("floor", "factor", "power"), [(0, 90, 0.3), (4, 100, 0.5), (2, 400, 1)])
def test_gain_of_exact_curves_is_within_the_interval(floor, factor, power):
    gain, (low, high) = curve_of([floor + factor * n**-power for n in SIZES]).gain
    truth = factor * (SIZES[-1] ** -power - (2 * SIZES[-1]) ** -power)
    assert low <= truth <= high
    assert gain == pytest.approx(truth, abs=0.35)


def test_interval_covers_the_truth_in_noise():
    rng, sd, covered = random.Random(0), 0.5, 0
    truth = 60 * (3000**-0.4 - 6000**-0.4)
    for _ in range(300):
        errors = [3 + 60 * n**-0.4 + rng.gauss(0, sd) for n in SIZES]
        _, (low, high) = curve_of(errors, sd**2).gain
        covered += low <= truth <= high
    assert covered >= 0.9 * 300


def test_flat_and_rising_errors_promise_nothing():
    for errors in ((5, 5, 5, 5), (4, 5, 6, 7)):
        gain, (low, high) = curve_of(errors).gain
        assert gain == pytest.approx(0, abs=1e-9)
        assert low < 0 < high


def test_more_noise_widens_the_interval():
    errors = [4 + 100 * n**-0.5 for n in SIZES]
    narrow, wide = (curve_of(errors, variance).gain[1] for variance in (0.01, 4.0))
    assert narrow.low > wide.low
    assert narrow.high < wide.high


@pytest.fixture
def shares(tmp_path):
    """Return a function that makes runs on fractions of 1,000 images and finds their curves."""

    def find(tops, duration="90ep", **facts):
        folders = []
        for (share, seed), top1 in tops.items():
            settings = {"data": {"root": "/data/pets", "share": share}, "max_duration": duration}
            name = f"{share}-{seed}-{len(list(tmp_path.iterdir()))}"
            folder = run_folder(tmp_path, name, top1=top1, seed=seed, config=settings)
            known = {"train_examples": int(1000 * share), "eval_examples": 400, "eval_digest": "a"}
            (folder / "data.json").write_text(json.dumps(known | facts))
            folders.append(folder)
        return list(find_learning_curves(group_seeds(read_all(folders))))

    return find


def test_seeds_are_averaged_and_sizes_ascend(shares):
    (curve,) = shares({(1.0, 1): 90, (0.1, 1): 60, (0.3, 1): 78, (0.3, 2): 82})
    assert [(point.images, point.top1_percent) for point in curve.points] == [
        (100, 60),
        (300, 80),
        (1000, 90),
    ]
    one, two, _ = (point.variance for point in curve.points)
    assert one == pytest.approx(1e4 * 0.4 * 0.6 / 400, rel=0.01)
    assert two == pytest.approx(1e4 * 0.2 * 0.8 / 400 + 8 / 2, rel=0.01)


def test_curve_needs_three_sizes_of_same_settings(shares):
    assert not shares({(1.0, 1): 90, (0.3, 1): 80})
    assert not shares({(1.0, 1): 90, (0.3, 1): 80}) + shares({(0.1, 1): 60}, duration="30ep")


def test_the_price_follows_the_unit_of_the_length(shares):
    tops = {(1.0, 1): 90, (0.3, 1): 80, (0.1, 1): 60}
    (longer,), (same,) = shares(tops), shares(tops, duration="400ba")
    assert longer.pflops == 2 * longer.points[-1].pflops
    assert same.pflops == same.points[-1].pflops
    assert "1,000 more photographs" in longer.describe()
    assert longer.as_dict()["twice"]["images"] == 2000

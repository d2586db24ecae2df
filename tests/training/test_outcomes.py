"""Metrics by class and by image, against direct computation."""

from collections import Counter

import pytest
import torch

from resnet_recipes.training.outcomes import Confusion, Outcomes


def make_random_outcomes(count: int) -> Outcomes:
    """Return outcomes of this many images of four classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (count,), generator=generator)
    best = torch.randint(0, 4, (count,), generator=generator)
    return Outcomes(labels, best, torch.rand(count, generator=generator), torch.arange(1.0 * count))


def test_calibration_error_matches_loop_over_bins():
    outcomes = make_random_outcomes(300)
    error = 0.0
    outcomes.probabilities[0] = 1.0
    # neighboring bins have opposite errors, which would cancel if they were merged
    first, second = ((15 * outcomes.probabilities).ceil() == number for number in (1, 2))
    outcomes.predicted[second] = outcomes.labels[second]
    outcomes.predicted[first] = 3 - outcomes.labels[first]
    rows = list(zip(*(field.tolist() for field in outcomes[:3]), strict=True))
    for number in range(15):
        inside = [row for row in rows if number / 15 < row[2] <= (number + 1) / 15]
        if inside:
            accuracy = sum(label == best for label, best, _ in inside) / len(inside)
            confidence = sum(probability for *_, probability in inside) / len(inside)
            error += len(inside) / 300 * abs(accuracy - confidence)
    assert outcomes.calibration_error_percent == pytest.approx(100 * error)


@pytest.mark.parametrize(("images", "ranks"), [(7, 1), (7, 2), (7, 3), (2, 3)])
def test_interleave_restores_order_of_images(images, ranks):
    whole = make_random_outcomes(images)
    parts = [Outcomes.concatenate([Outcomes(*(f[r::ranks] for f in whole))]) for r in range(ranks)]
    parts = [part if len(part.labels) else Outcomes.concatenate([]) for part in parts]
    for field, expected in zip(Outcomes.interleave(parts), whole, strict=True):
        assert torch.equal(field, expected)
        assert field.dtype == expected.dtype


def test_find_confident_errors_sorts_wrong_images_by_probability():
    outcomes = make_random_outcomes(100)
    wrong = [i for i in range(100) if outcomes.predicted[i] != outcomes.labels[i]]
    wrong.sort(key=lambda i: -outcomes.probabilities[i])
    assert outcomes.find_confident_errors(1000) == wrong
    assert outcomes.find_confident_errors(3) == wrong[:3]


def test_confusion_counts_match_manual_counts():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.randint(0, 6, (200,), generator=generator) * 2).tolist()  # odd ones have none
    best = torch.randint(0, 12, (200,), generator=generator).tolist()
    confusion = make_confusion(labels, best)
    counts = Counter(zip(labels, best, strict=True))
    classes = confusion.classes()
    recalls = [row.recall_percent for row in classes]
    assert recalls == sorted(recalls)
    assert sorted((row.label, row.images, row.correct) for row in classes) == [
        (n, labels.count(n), counts[n, n]) for n in range(0, 12, 2)
    ]
    assert {(true, guess): count for true, guess, count in confusion.cells()} == counts
    wrong = {pair: count for pair, count in counts.items() if pair[0] != pair[1]}
    assert {(true, guess): count for true, guess, count in confusion.mistakes(1000)} == wrong
    assert confusion.mistakes(1)[0].images == max(wrong.values())


def make_confusion(labels: list[int], best: list[int]) -> Confusion:
    unused = torch.zeros(len(labels))
    return Confusion(Outcomes(torch.tensor(labels), torch.tensor(best), unused, unused))


def test_class_metrics_match_manual_computation():
    """Class 2 is never predicted correctly; class 3 is predicted but has no images.

    scikit-learn's precision_recall_fscore_support gives the same values with labels=[0, 1, 2] and
    zero_division=0.
    """
    confusion = make_confusion([0] * 6 + [1] * 3 + [2], [0, 0, 0, 0, 1, 1, 1, 1, 3, 0])
    by_label = {
        row.label: (row.precision_percent, row.recall_percent, row.f1_percent)
        for row in confusion.classes()
    }
    assert by_label[0] == pytest.approx((80, 100 * 2 / 3, 100 * 8 / 11))
    assert by_label[1] == pytest.approx((50, 100 * 2 / 3, 100 * 4 / 7))
    assert by_label[2] == (0, 0, 0)
    macro, weighted = confusion.means().values()
    assert macro == pytest.approx([130 / 3, 400 / 9, 100 / 3 * (8 / 11 + 4 / 7)])
    assert weighted == pytest.approx([63, 60, 10 * (6 * 8 / 11 + 3 * 4 / 7)])

from collections import Counter

import pytest
import torch

from resnet_recipes.training.outcomes import Confusion, Outcomes


def random_outcomes(count: int) -> Outcomes:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (count,), generator=generator)
    best = torch.randint(0, 4, (count,), generator=generator)
    return Outcomes(labels, best, torch.rand(count, generator=generator), torch.arange(1.0 * count))


def test_the_calibration_error_is_that_of_a_loop_over_bins():
    found, error = random_outcomes(300), 0.0
    found.probabilities[0] = 1.0
    # neighbouring bins err in opposite directions: together they would look better
    first, second = ((15 * found.probabilities).ceil() == number for number in (1, 2))
    found.best[second], found.best[first] = found.labels[second], 3 - found.labels[first]
    rows = list(zip(*(field.tolist() for field in found[:3]), strict=True))
    for number in range(15):
        inside = [row for row in rows if number / 15 < row[2] <= (number + 1) / 15]
        if inside:
            accuracy = sum(label == best for label, best, _ in inside) / len(inside)
            confidence = sum(probability for *_, probability in inside) / len(inside)
            error += len(inside) / 300 * abs(accuracy - confidence)
    assert found.calibration_error_percent == pytest.approx(100 * error)


@pytest.mark.parametrize(("images", "ranks"), [(7, 1), (7, 2), (7, 3), (2, 3)])
def test_the_images_of_ranks_are_put_back_into_their_order(images, ranks):
    whole = random_outcomes(images)
    parts = [Outcomes.joined([Outcomes(*(f[r::ranks] for f in whole))]) for r in range(ranks)]
    parts = [part if len(part.labels) else Outcomes.joined([]) for part in parts]
    for field, wanted in zip(Outcomes.interleaved(parts), whole, strict=True):
        assert torch.equal(field, wanted)
        assert field.dtype == wanted.dtype


def test_the_most_wrong_images_are_the_wrong_ones_by_probability():
    found = random_outcomes(100)
    wrong = [i for i in range(100) if found.best[i] != found.labels[i]]
    wrong.sort(key=lambda i: -found.probabilities[i])
    assert found.most_wrong(1000) == wrong
    assert found.most_wrong(3) == wrong[:3]


def test_classes_and_mistakes_are_those_of_a_count_by_hand():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.randint(0, 6, (200,), generator=generator) * 2).tolist()  # odd ones have none
    best = torch.randint(0, 12, (200,), generator=generator).tolist()
    confusion, counts = confusion_of(labels, best), Counter(zip(labels, best, strict=True))
    found = confusion.classes()
    assert [row.top1_percent for row in found] == sorted(row.top1_percent for row in found)
    rows = [(row.label, row.images, row.correct) for row in found]
    assert sorted(rows) == [(n, labels.count(n), counts[n, n]) for n in range(0, 12, 2)]
    assert {(true, guess): count for true, guess, count in confusion.cells()} == counts
    wrong = {pair: count for pair, count in counts.items() if pair[0] != pair[1]}
    assert {(true, guess): count for true, guess, count in confusion.mistakes(1000)} == wrong
    assert confusion.mistakes(1)[0].images == max(wrong.values())


def confusion_of(labels: list[int], best: list[int]) -> Confusion:
    unused = torch.zeros(len(labels))
    return Confusion(Outcomes(torch.tensor(labels), torch.tensor(best), unused, unused))


def test_figures_of_classes_are_those_computed_by_hand():
    """Class 2 is never right, and class 3 is named without having images: it counts as that, too.

    scikit-learn's precision_recall_fscore_support says the same, with zero_division=0.
    """
    confusion = confusion_of([0] * 6 + [1] * 3 + [2], [0, 0, 0, 0, 1, 1, 1, 1, 3, 0])
    found = {
        row.label: (row.precision_percent, row.top1_percent, row.f1_percent)
        for row in confusion.classes()
    }
    assert found[0] == pytest.approx((80, 100 * 2 / 3, 100 * 8 / 11))
    assert found[1] == pytest.approx((50, 100 * 2 / 3, 100 * 4 / 7))
    assert found[2] == (0, 0, 0)
    macro, weighted = confusion.means().values()
    assert macro == pytest.approx([32.5, 100 / 3, 25 * (8 / 11 + 4 / 7)])
    assert weighted == pytest.approx([63, 60, 10 * (6 * 8 / 11 + 3 * 4 / 7)])

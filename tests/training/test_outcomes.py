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
    rows = list(zip(*(field.tolist() for field in found[:3]), strict=True))
    for number in range(15):
        inside = [row for row in rows if number / 15 < row[2] <= (number + 1) / 15]
        if inside:
            accuracy = sum(label == best for label, best, _ in inside) / len(inside)
            confidence = sum(probability for *_, probability in inside) / len(inside)
            error += len(inside) / 300 * abs(accuracy - confidence)
    assert found.calibration_error_percent == pytest.approx(100 * error)


@pytest.mark.parametrize(("probability", "error"), [(1.0, 25.0), (0.75, 0.0), (0.7, 5.0)])
def test_probabilities_equal_to_the_accuracy_have_no_calibration_error(probability, error):
    right = torch.tensor([1, 1, 1, 0])
    found = Outcomes(torch.ones(4), right, torch.full((4,), probability), torch.zeros(4))
    assert found.calibration_error_percent == pytest.approx(error, abs=1e-5)


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
    labels = torch.randint(0, 6, (200,), generator=generator) * 2  # odd classes have no images
    best = torch.randint(0, 12, (200,), generator=generator)
    confusion, counts = confusion_of(labels.tolist(), best.tolist()), {}
    for label, guess in zip(labels.tolist(), best.tolist(), strict=True):
        counts[label, guess] = counts.get((label, guess), 0) + 1
    for label, images, correct, _ in confusion.classes():
        assert images == sum(count for (true, _), count in counts.items() if true == label)
        assert correct == counts.get((label, label), 0)
    shares = [result.top1_percent for result in confusion.classes()]
    assert shares == sorted(shares)
    assert len(shares) == 6
    wrong = {pair: count for pair, count in counts.items() if pair[0] != pair[1]}
    assert {(true, guess): count for true, guess, count in confusion.cells()} == counts
    assert {(true, guess): count for true, guess, count in confusion.mistakes(1000)} == wrong
    assert confusion.mistakes(1)[0].images == max(wrong.values())


@pytest.fixture
def few() -> tuple[list[int], list[int]]:
    """Labels and best classes: class 2 is rare, class 3 is named without having images."""
    return [0, 0, 0, 0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 1, 1, 1, 3, 0]


def confusion_of(labels: list[int], best: list[int]) -> Confusion:
    unused = torch.zeros(len(labels))
    return Confusion(Outcomes(torch.tensor(labels), torch.tensor(best), unused, unused))


def test_figures_of_classes_are_those_computed_by_hand(few):
    confusion = confusion_of(*few)
    found = {row.label: row for row in confusion.classes()}
    assert found[0].precision_percent == pytest.approx(100 * 5 / 6)
    assert found[0].top1_percent == pytest.approx(100 * 5 / 6)
    assert found[1].precision_percent == pytest.approx(100 * 2 / 3)
    assert found[1].f1_percent == pytest.approx(100 * 2 / 3)
    assert (found[2].precision_percent, found[2].f1_percent) == (0, 0)
    macro, weighted = confusion.means().values()
    # class 3 counts as a class that was never right
    assert macro == pytest.approx([100 * (5 / 6 + 2 / 3) / 4] * 3)
    assert weighted == pytest.approx([100 * (6 * 5 / 6 + 3 * 2 / 3) / 10] * 3)


def test_figures_of_classes_are_scikit_learns(few):
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(1)
    many = torch.randint(0, 7, (2, 300), generator=generator).tolist()
    for labels, best in (few, many):
        confusion = confusion_of(labels, best)
        for kind, mean in confusion.means().items():
            wanted = metrics.precision_recall_fscore_support(
                labels, best, average=kind, zero_division=0
            )[:3]
            assert mean == pytest.approx([100 * value for value in wanted])

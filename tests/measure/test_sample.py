"""Which epochs are timed, and what they say of the whole run, against sums done by hand."""

import pytest

from resnet_recipes.measure.sample import sampled, whole


@pytest.mark.parametrize(
    ("sizes", "count", "epochs"),
    [
        ([224] * 600, 10, list(range(10))),
        ([224] * 4, 10, [0, 1, 2, 3]),
        ([160] * 12 + [192] * 4, 10, [0, 1, 15]),
        ([88] * 4 + [96, 104, 112, 120, 128] + [176] * 3, 4, [0, 1, 4, 11]),
        ([88] * 4 + [96, 104, 112, 120, 128] + [176] * 3, 2, [0, 1, 11]),
    ],
)
def test_the_first_epochs_are_timed_or_some_at_every_size(sizes, count, epochs):
    assert sampled(sizes, count) == epochs


def test_the_first_epoch_counts_as_long_as_the_second():
    assert whole([224] * 600, {0: 90.0, 1: 60.0, 2: 66.0}) == pytest.approx(
        600 * (60 + 60 + 66) / 3
    )
    assert whole([224] * 3, {0: 90.0, 1: 60.0, 2: 66.0}) == pytest.approx(60 + 60 + 66)


def test_sizes_that_were_not_timed_lie_between_those_that_were_by_area():
    sizes = [100] * 2 + [150] + [200] * 2
    between = 10 + (40 - 10) * (150**2 - 100**2) / (200**2 - 100**2)
    assert whole(sizes, {0: 15.0, 1: 10.0, 4: 40.0}) == pytest.approx(2 * 10 + between + 2 * 40)

"""The quasi-random order, and when it is rejected."""

from dataclasses import replace

import numpy as np
import pytest

from resnet_recipes.data.beton import open_beton, samples
from resnet_recipes.data.beton.samples import (
    find_quasi_random_problem,
    is_sorted_by_class,
    make_quasi_random_order,
)


@pytest.fixture
def beton(betons):
    """5,000 samples, ten per page, in five classes in random order."""
    count = 5000
    labels = np.random.default_rng(0).integers(0, 5, count)
    one = open_beton(betons / "train.beton")
    return replace(
        one,
        page_size=4096,
        starts=np.arange(count) * 410 // 4096 * 4096,
        lengths=np.full(count, 400),
        labels=labels,
    )


def test_epoch_order_depends_on_seed_and_epoch(beton):
    order = make_quasi_random_order(beton)
    first = order(1, 0, len(beton))
    assert np.array_equal(np.sort(first), np.arange(len(beton)))
    assert np.array_equal(first, order(1, 0, len(beton)))
    assert not np.array_equal(first, order(1, 1, len(beton)))
    assert not np.array_equal(first, order(2, 0, len(beton)))


def test_quasi_random_order_opens_few_pages(beton, monkeypatch):
    monkeypatch.setattr(samples, "WINDOW_PAGES", 16)
    pages = (beton.starts // beton.page_size)[make_quasi_random_order(beton)(0, 0, len(beton))]
    positions = np.arange(len(pages))
    last, first = np.zeros((2, pages.max() + 1), int)
    last[pages] = positions
    first[pages[::-1]] = positions[::-1]
    is_open = (first <= positions[:, None]) & (positions[:, None] <= last)
    assert is_open.sum(1).max() <= 16


def test_quasi_random_order_rejects_window_beyond_memory(beton, monkeypatch):
    monkeypatch.setattr(samples, "get_available_memory", lambda: 1000)
    problem = find_quasi_random_problem(replace(beton, page_size=8 << 20))
    assert "4.29 GB" in problem.clause


def test_quasi_random_order_rejects_file_sorted_by_class(beton):
    assert find_quasi_random_problem(beton) is None
    assert not is_sorted_by_class(beton)
    clumped = replace(beton, labels=np.sort(beton.labels))
    assert is_sorted_by_class(clumped)
    assert "class by class" in find_quasi_random_problem(clumped).clause

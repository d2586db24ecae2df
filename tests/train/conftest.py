"""What tests of whole ranks share."""

from collections.abc import Iterator

import pytest

from tests.train.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A source of ranks that starts in milliseconds."""
    made = Nursery()
    yield made
    made.close()

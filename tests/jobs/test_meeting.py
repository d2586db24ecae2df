"""Ranks agree before they train, or all learn why not."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import torch.distributed as dist

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.jobs.prepared import Meeting


def verdicts(facts: list[dict]) -> list[str]:
    """Return what each rank raises, ranks being threads."""
    store = dist.HashStore()

    def rank(number: int) -> str:
        try:
            Meeting(store, number, len(facts)).confirm(facts[number])
        except NotReadyError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(rank, range(len(facts))))


def test_ranks_with_the_same_facts_proceed():
    assert verdicts([{"lr": 1.0, "torch": "2.14"}] * 3) == ["", "", ""]


def test_every_rank_learns_which_one_differs_and_how():
    said = verdicts(
        [{"lr": 1.0, "torch": "2.14"}, {"lr": 1.0, "torch": "2.14"}, {"lr": 1.0, "torch": "2.15"}]
    )
    assert len(set(said)) == 1
    assert said[0].startswith("torch: is 2.14 on rank 0, but 2.15 on rank 2 (")


def test_what_only_one_rank_has_is_named_too():
    (said, _) = verdicts([{}, {"seed": 9}])
    assert "seed: is not given on rank 0, but 9 on rank 1" in said


def test_what_rank_0_says_is_computed_once_and_returned_by_all():
    store, calls = dist.HashStore(), []

    def rank(number: int) -> str:
        return Meeting(store, number, 3).broadcast(lambda: calls.append(number) or "runs/a")

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(rank, range(3))) == ["runs/a"] * 3
    assert calls == [0]


def test_ranks_wait_for_the_one_that_fetches_longest():
    store = dist.HashStore()
    with ThreadPoolExecutor(2) as pool:
        watchdog = Mock()
        first = pool.submit(Meeting(store, 0, 2).await_all, watchdog)
        while not watchdog.beat.called:
            assert not first.done()
        Meeting(store, 1, 2).await_all(Mock())
        first.result(timeout=10)

"""InfoBatch against the authors' rule, and the same run however it is cut into parts."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from resnet_recipes.base.duration import Horizon
from resnet_recipes.base.errors import RecipeError, TrainingError
from resnet_recipes.methods.base import Batch, Now
from resnet_recipes.methods.infobatch import InfoBatch, chosen
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import restore
from tests.training.test_loop import Notes, differing

WRONG = {"skip": [-0.1, 0.95], "until": [-0.1, 1.1]}

LOSSES = np.array([0.1, 5.0, 0.2, 0.3, 4.0, 0.4, 0.5, 6.0, 0.6, 0.7], np.float32)  # mean 1.78
LEARNED = [0, 2, 3, 5, 6, 8, 9]


def at(epoch: int, epochs: int = 8, steps: int = 5) -> Now:
    """Return the start of an epoch of a run, with its generator."""
    return Now(epoch * steps, Horizon(epochs * steps, steps), np.random.default_rng(epoch))


def test_a_pass_has_what_the_authors_code_keeps_and_weighs():
    shuffled = np.random.default_rng(0).permutation(10)
    order, weights = chosen(shuffled, LOSSES, 0.4, np.random.default_rng(1))
    # int(0.6 * 7) = 4 of the 7 below the mean are kept, and count 1 / 0.6 times
    first = order[:7]
    assert len(set(first.tolist())) == 7
    assert sorted(set(first.tolist()) - set(LEARNED)) == [1, 4, 7]
    expected = [1 / np.float32(0.6) if image in LEARNED else 1.0 for image in order]
    assert weights.tolist() == pytest.approx(expected)


def test_an_epoch_keeps_its_length_and_a_second_pass_leaves_out_others():
    shuffled = np.arange(10)
    found = [chosen(shuffled, LOSSES, 0.4, np.random.default_rng(seed))[0] for seed in range(200)]
    assert all(len(order) == 10 for order in found)
    shown = np.stack([np.bincount(order, minlength=10) for order in found]).mean(0)
    # 10 places for 3 hard images and 4 of 7 learned ones a pass: 10 / 7 passes
    assert shown[[1, 4, 7]] == pytest.approx(10 / 7, abs=0.1)
    assert shown[LEARNED] == pytest.approx(4 / 7 * 10 / 7, abs=0.15)
    assert any((order[:7] != np.sort(order[:7])).any() or order[7] != order[0] for order in found)


def test_nothing_is_left_out_while_all_losses_are_equal_and_at_the_end_of_the_run():
    method, shuffled = InfoBatch(skip=0.5), np.random.default_rng(0).permutation(10)
    assert method.order(shuffled, at(0)) is shuffled
    method.load_state_dict(state(epoch=6))
    assert method.order(shuffled, at(6)) is not shuffled
    method.load_state_dict(state(epoch=7))
    assert method.order(shuffled, at(7)) is shuffled  # 7 of 8 epochs are 0.875


@pytest.mark.parametrize(
    ("epochs", "all_shown"), [(6, [5]), (8, [7]), (10, [8, 9]), (16, [14, 15])]
)
def test_images_are_left_out_in_the_epochs_of_the_authors_sampler(epochs, all_shown):
    # theirs counts epochs from 1, and prunes while the count is at most 0.875 of their number
    method, shuffled, found = InfoBatch(), np.random.default_rng(0).permutation(10), []
    for epoch in range(epochs):
        method.load_state_dict(state(epoch))
        if method.order(shuffled, at(epoch, epochs)) is shuffled:
            found.append(epoch)
    assert found == all_shown


def state(epoch: int) -> dict[str, torch.Tensor]:
    """Return what a checkpoint has at the start of an epoch."""
    losses = torch.from_numpy(LOSSES)
    return {"scores": losses, "latest": losses, "place": torch.tensor([epoch, 0])}


def test_an_epoch_waits_for_the_losses_of_the_one_before_and_heeds_them():
    method, shuffled = InfoBatch(), np.arange(10)
    method.order(shuffled, at(0))
    for step in range(5):
        assert method.order(shuffled, at(1)) is None
        losses = torch.from_numpy(LOSSES[2 * step : 2 * step + 2])
        method.gradient(lambda losses=losses: losses, [], at(0))
    assert (method.order(shuffled, at(1)) != shuffled).any()
    assert method.state_dict()["scores"].tolist() == LOSSES.tolist()


def test_training_may_begin_at_any_epoch_and_any_step_of_it():
    for first in (15, 19):
        method, shuffled = InfoBatch(), np.arange(10)
        assert method.order(shuffled, at(3)) is shuffled
        for step in range(first, 20):
            assert method.order(shuffled, at(4)) is None
            method.gradient(lambda: torch.zeros(2), [], at(3)._replace(step=step))
        assert method.order(shuffled, at(4)) is not None
        latest = method.state_dict()["latest"]
        assert (latest == 0).tolist() == [place >= 2 * (first - 15) for place in range(10)]


def test_an_examples_weight_is_that_of_its_place_in_the_epoch():
    method, shuffled = InfoBatch(), np.random.default_rng(0).permutation(10)
    method.load_state_dict(state(epoch=3))
    order = method.order(shuffled, at(3))
    for step in range(5):
        batch = Batch(torch.zeros(2, 3, 4, 4), torch.zeros(2, 7), torch.zeros(2, dtype=torch.int64))
        now = at(3)._replace(step=15 + step)
        weights = method.transform_batch(batch, now).weights
        expected = [2.0 if i in LEARNED else 1.0 for i in order[2 * step : 2 * step + 2]]
        assert weights.tolist() == expected


def test_a_resumed_run_shows_the_same_images_bit_for_bit(make_run: Callable[..., Run]):
    """In an epoch without losses, at the start of the next, and within it."""
    settings = {"max_duration": "11ba", "batch": {"global_size": 32, "bn_size": 32}}
    changes = settings | {"methods": {"infobatch": {"until": 0.9}}}
    train(whole := make_run(**changes), notes := Notes(whole, keep=(2, 4, 5)))
    for done, state in notes.states.items():
        train(resumed := make_run(**changes), after := Notes(resumed), restore(resumed, state))
        assert torch.equal(torch.stack(after.losses), torch.stack(notes.losses[done:]))
        assert differing(resumed, whole) == []
    train(plain := make_run(**settings), without := Notes(plain))
    assert torch.equal(torch.stack(without.losses[:4]), torch.stack(notes.losses[:4]))
    assert not torch.equal(torch.stack(without.losses[4:]), torch.stack(notes.losses[4:]))


@pytest.mark.parametrize(
    "damage",
    [
        {"scores": torch.zeros(9)},
        {"latest": torch.zeros(10, dtype=torch.int64)},
        {"place": torch.tensor([1, -1])},
        {"place": torch.tensor([1])},
    ],
)
def test_a_state_that_is_not_its_own_is_refused(damage: dict[str, torch.Tensor]):
    with pytest.raises(TrainingError, match="cannot be used"):
        InfoBatch().load_state_dict(state(epoch=3) | damage)


def test_losses_of_other_images_are_refused():
    (method := InfoBatch()).load_state_dict(state(epoch=3))
    with pytest.raises(TrainingError, match="of other images"):
        method.order(np.arange(11), at(3))


def test_what_makes_losses_meaningless_is_refused_with_the_reason(make_run: Callable[..., Run]):
    methods = {"infobatch": {}, "mixup": {}, "sam": {}}
    with pytest.raises(RecipeError) as refused:
        make_run(methods=methods, data={"repeats": 2, "order": "quasi_random"})
    text = " ".join(str(refused.value).split())
    for part in (
        "methods.mixup: cannot be combined with infobatch: the loss of a mixture belongs to no",
        "methods.sam: cannot be combined with infobatch: half of its losses are those of moved",
        "data.repeats=2: cannot be used with infobatch",
        "data.order=quasi_random: cannot be used with infobatch",
    ):
        assert part in text

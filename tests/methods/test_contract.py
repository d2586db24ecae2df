"""The contract that every method must keep."""

import importlib
import pickle
import re
from dataclasses import fields
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from resnet_recipes.methods import ORDER, Methods
from resnet_recipes.methods.base import HOOKS, Method
from resnet_recipes.methods.card import make_card
from tests.methods.inputs import make_batch, make_network, make_now
from tests.shared.checks import is_identical
from tests.shared.images import make_noise


def parametrize_methods(hook: str) -> pytest.MarkDecorator:
    """Run a test for each method with this hook; for each method if it is ""."""
    methods = [method for method in ORDER if not hook or method().provides(hook)]
    return pytest.mark.parametrize("method", methods, ids=lambda method: method.name)


every_method = parametrize_methods("")


@every_method
def test_method_card_is_complete_and_names_its_source(method):
    card = make_card(method)
    texts = (*card.details, card.cost, card.gain, card.avoid_when)
    assert min(map(len, (card.summary, *texts))) > 4
    assert not any("\n" in text or "  " in text for text in texts)
    assert len(card.summary) <= 130
    assert card.summary.endswith(".")
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|doi:|fast\.ai|Composer", card.summary)
    assert re.search(r"\d{4}|0\.7\.1", card.summary)
    assert all(setting.meaning for setting in card.settings)
    assert (method.inference != Method.inference) == method.in_network


@every_method
def test_defaults_are_valid_and_wrong_values_rejected(method):
    """Wrong values come from `WRONG` in the tests of the method; on/off settings have none."""
    wrong = getattr(importlib.import_module(f"tests.methods.test_{method.name}"), "WRONG", {})
    assert wrong.keys() == {
        item.name for item in fields(method) if not isinstance(item.default, bool)
    }
    assert list(method().problems()) == []
    for name, values in wrong.items():
        for value in values:
            keys = [problem.key for problem in method(**{name: value}).problems()]
            assert keys, f"{name}={value}"
            assert all("." not in key for key in keys)


@every_method
def test_method_name_matches_file_and_key(method):
    assert method.__module__.rpartition(".")[2] == method.name
    assert method.name in {item.name for item in fields(Methods)}
    assert any(method().provides(hook) for hook in HOOKS)


@parametrize_methods("transform_batch")
def test_transform_keeps_batch_layout_and_depends_on_rng(method):
    batch = make_batch()
    copies = batch.map(torch.clone)
    first, again, other = (
        method().transform_batch(batch, now)
        for now in (make_now(3), make_now(3), make_now(3, seed=9))
    )
    assert is_identical(batch[:3], copies[:3])
    assert (len(first.images), first.images.shape[1], first.targets.shape) == (8, 3, (8, 10))
    assert (first.images.dtype, first.targets.dtype) == (torch.float32, torch.float32)
    assert first.images.is_contiguous(memory_format=torch.channels_last)
    assert first.labels is batch.labels
    assert torch.allclose(first.targets.sum(1), torch.ones(8))
    assert is_identical(first[:3], again[:3])
    resizes_by_epoch = method.loaded_size != Method.loaded_size
    is_random = method.changes != "labels" and not resizes_by_epoch
    assert torch.equal(first.images, other.images) != is_random


@parametrize_methods("transform_batch")
def test_size_after_matches_transformed_batch(method):
    for step in (0, 65, 99):
        now = make_now(step)
        width = method().transform_batch(make_batch(size=32), now).images.shape[-1]
        assert width == method().size_after(32, now.epoch, now.horizon)


@every_method
def test_extra_gradient_every_counts_second_gradients(method):
    instance = method()
    every = method().extra_gradient_every
    weight = torch.ones(1, requires_grad=True)
    compute = Mock(side_effect=lambda sync=True: weight.sum().backward())
    for step in range(20) if instance.provides("gradient") else ():
        compute.reset_mock()
        instance.gradient(compute, [weight], make_now(step))
        assert compute.call_count == 1 + (every > 0 and (step + 1) % every == 0)
    assert not every or instance.provides("gradient")


@parametrize_methods("augment_image")
def test_image_augmentation_pickles_and_depends_on_its_generator(method):
    image = make_noise(24, 24)
    before = image.tobytes()
    state = torch.get_rng_state()
    augment = pickle.loads(pickle.dumps(method().augment_image()))
    results = [augment(image, np.random.default_rng(seed)) for seed in (4, 4, *range(5, 15))]
    assert results[0].tobytes() == results[1].tobytes()
    assert {(result.mode, result.size) for result in results} == {("RGB", (24, 24))}
    assert len({result.tobytes() for result in results}) > 2  # flips has four results
    assert image.tobytes() == before
    assert torch.equal(torch.get_rng_state(), state)


@parametrize_methods("modify_model")
def test_modified_model_keeps_keys_and_parameters(method):
    model = make_network()
    plain = make_network()
    parameters = list(model.parameters())
    method().modify_model(model)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    model.load_state_dict(plain.state_dict())
    model.to(memory_format=torch.channels_last)
    assert all(
        p.is_contiguous(memory_format=torch.channels_last)
        for p in model.parameters()
        if p.dim() == 4 and p.shape[2] > 1
    )


@every_method
def test_random_numbers_in_forward_are_declared(method):
    model = make_network().train()
    if method().provides("modify_model"):
        method().modify_model(model)
    before = torch.get_rng_state()
    model(torch.zeros(2, 3, 32, 32))
    assert torch.equal(torch.get_rng_state(), before) is not method.is_random_in_forward


@every_method
def test_method_state_survives_saving_and_loading(method):
    model = make_network()
    uninterrupted = method()
    resumed = method()
    if uninterrupted.provides("after_step"):
        for step in range(2):
            uninterrupted.after_step(model, make_now(step))
    state = uninterrupted.state_dict()
    resumed.load_state_dict(state)
    assert is_identical(resumed.state_dict(), state)
    # the plan uses this to predict the size of a checkpoint
    copies = sum(map(torch.numel, state.values())) / sum(
        map(torch.numel, model.state_dict().values())
    )
    assert copies == (method.extra_weights if method().provides("eval_weights") else 0)
    if not state:
        with pytest.raises(ValueError, match="keeps no state"):
            Method.load_state_dict(resumed, {"x": torch.zeros(1)})

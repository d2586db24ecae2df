"""Combinations of methods: their order, which pairs commute, and which exclude each other."""

import importlib
import random
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.methods import ORDER, Methods
from resnet_recipes.methods.colout import ColOut
from resnet_recipes.methods.ema import EMA
from resnet_recipes.methods.label_smoothing import LabelSmoothing
from resnet_recipes.methods.mixup import MixUp
from resnet_recipes.methods.progressive_resizing import ProgressiveResizing
from resnet_recipes.methods.randaugment import RandAugment
from resnet_recipes.methods.sam import SAM
from resnet_recipes.methods.stack import Stack
from resnet_recipes.methods.trivial_augment import TrivialAugment
from tests.methods.inputs import make_batch, make_network, make_now
from tests.shared.checks import is_identical
from tests.shared.images import make_noise
from tests.shared.tables import parse_rows

BY_NAME = {method.name: method for method in ORDER}
TRANSFORMS = [method.name for method in ORDER if method().provides("transform_batch")]

HOT = {
    "blurpool",
    "stochastic_depth",
    "bce_loss",
    "randaugment",
    "colout",
    "progressive_resizing",
    "label_smoothing",
    "mixup",
    "sam",
    "ema",
}

EXCLUDE_EACH_OTHER = {
    *combinations(("mixup", "cutmix", "mixup_or_cutmix"), 2),
    *combinations(("randaugment", "increasing_randaugment", "trivial_augment"), 2),
}


def enable_methods(names: set[str]) -> Methods:
    return Methods(**{name: BY_NAME[name]() for name in names})


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in combinations(TRANSFORMS, 2) if pair not in EXCLUDE_EACH_OTHER],
)
def test_method_pairs_commute_except_as_listed(first, second):
    tests = importlib.import_module(f"tests.methods.test_{second}")
    make = {
        "random_erasing": lambda: BY_NAME["random_erasing"](p=0.5),
        "mixup_or_cutmix": lambda: BY_NAME["mixup_or_cutmix"](switch=1.0),
    }
    methods = [make.get(name, BY_NAME[name])() for name in (first, second)]
    results = []
    for order in (methods, methods[::-1]):
        batch = make_batch(examples=12, size=32)
        for method in order:
            batch = method.transform_batch(batch, make_now(2, seed=TRANSFORMS.index(method.name)))
        results.append(batch)
    one, other = results
    agrees = one.images.shape == other.images.shape and all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(one[:3], other[:3], strict=True)
    )
    assert agrees == (first not in getattr(tests, "DOES_NOT_COMMUTE", ()))


def test_declared_order_gives_published_sizes_and_targets():
    methods = Methods(
        colout=ColOut(0.05, 0.05),
        progressive_resizing=ProgressiveResizing(initial_scale=0.6, delay="0.2dur"),
    )
    assert (
        Stack.of(methods)
        .transform_batch(make_batch(examples=1, size=176), make_now())
        .images.shape[-1]
        == 100
    )
    methods = Methods(label_smoothing=LabelSmoothing(0.13), mixup=MixUp(0.25))
    batch = make_batch(examples=4, classes=1000)
    mixed = Stack.of(methods).transform_batch(batch, make_now(1))
    share = min(draw := make_now(1).rng.beta(0.25, 0.25), 1 - draw)
    # only the fraction of the image's own label is smoothed
    assert mixed.targets[:, 500].tolist() == pytest.approx([(1 - share) * 0.13 / 1000] * 4)


def test_stack_order_does_not_depend_on_input_order():
    names = sorted(HOT)
    expected = Stack.of(enable_methods(HOT)).group_by_hook()
    for seed in range(10):
        random.Random(seed).shuffle(names)
        assert Stack({name: BY_NAME[name]() for name in names}).group_by_hook() == expected


@pytest.mark.parametrize(
    ("interval", "text"),
    parse_rows(
        """
1 | every step
2 | every 2 steps
"""
    ),
)
def test_group_by_hook_shows_how_often_sam_acts(interval, text):
    assert Stack({"sam": SAM(interval=int(interval))}).group_by_hook() == {
        "gradient": [f"sam ({text})"]
    }


def test_two_methods_with_exclusive_hook_are_rejected(monkeypatch):
    monkeypatch.setattr(
        EMA, "gradient", lambda self, compute, params, now: compute(), raising=False
    )
    problems = list(Stack.of(enable_methods({"sam", "ema"})).problems())
    assert [problem.key for problem in problems] == ["ema"]
    assert "sam and ema both define the gradient" in problems[0].clause


@pytest.mark.parametrize("pair", sorted(EXCLUDE_EACH_OTHER))
def test_conflicting_methods_are_one_problem(pair):
    problems = list(Stack.of(enable_methods(set(pair))).problems())
    assert len(problems) == 1
    assert pair[0] in str(problems[0])
    assert pair[1] in str(problems[0])


def test_empty_stack_is_plain_training():
    stack = Stack({})
    batch = make_batch()
    assert stack.group_by_hook() == {}
    assert stack.augment_image() is None
    assert stack.transform_batch(batch, make_now()) is batch
    assert stack.gradient(lambda: "loss", [], make_now()) == "loss"
    with stack.eval_weights(make_network()):
        pass
    logits = torch.randn(4, 7)
    targets = torch.softmax(torch.randn(4, 7), 1)
    expected = -(targets * F.log_softmax(logits, 1)).sum(1)
    batch = batch._replace(targets=targets)
    assert torch.allclose(stack.losses(logits, batch), expected)
    assert stack.losses(logits.to(torch.bfloat16), batch).dtype == torch.float32


def test_image_augmentations_run_in_turn():
    image = make_noise(16, 16)
    stack = Stack({"trivial_augment": TrivialAugment(), "randaugment": RandAugment()})
    rng = np.random.default_rng(1)
    again = np.random.default_rng(1)
    expected = TrivialAugment().augment_image()(RandAugment().augment_image()(image, again), again)
    assert stack.augment_image()(image, rng).tobytes() == expected.tobytes()


def test_native_augmentations_sample_operations_in_turn():
    """The methods use the random generator in turn."""
    stack = Stack({"trivial_augment": TrivialAugment(), "randaugment": RandAugment(depth=3)})
    rng = np.random.default_rng(1)
    again = np.random.default_rng(1)
    parts = [augment.sample_operations(16, again) for augment in stack.augment_image().augments]
    assert [len(part) for part in parts] == [3, 1]
    assert stack.augment_image().sample_operations(16, rng) == parts[0] + parts[1]


def test_augmentation_without_operations_disables_native_decoder(monkeypatch):
    stack = Stack({"trivial_augment": TrivialAugment(), "randaugment": RandAugment()})
    monkeypatch.setattr(TrivialAugment, "augment_image", lambda self: lambda image, rng: image)
    assert not hasattr(stack.augment_image(), "sample_operations")


def test_state_of_a_disabled_method_is_rejected():
    stack = Stack.of(enable_methods(HOT))
    stack.after_step(make_network(), make_now())
    state = stack.state_dict()
    assert all(key.startswith("ema.") for key in state)
    other = Stack.of(enable_methods(HOT))
    other.load_state_dict(state)
    assert is_identical(other.state_dict(), state)
    with pytest.raises(ValueError, match="ema, which is off"):
        Stack({}).load_state_dict(state)

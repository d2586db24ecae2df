"""Class weights against the formula of the paper and a loop in the test."""

import numpy as np
import pytest
import torch

from resnet_recipes import data
from resnet_recipes.data.base import DataFacts
from resnet_recipes.methods.base import Batch, Now, encode_one_hot
from resnet_recipes.methods.class_weights import ClassWeights
from resnet_recipes.planning.planner import make_plan
from tests.shared.plans import make_recipe

#: Values that the settings must reject.
WRONG = {"rule": ["balanced", ""], "beta": [-0.1, 1.0]}

COUNTS = (500, 50, 5)
NOW = Now.at(0, 10, 5)


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999])
def test_class_weight_is_inverse_of_effective_number(beta: float):
    expected = [(1 - beta) / (1 - beta**count) for count in COUNTS]
    scale = sum(COUNTS) / sum(w * n for w, n in zip(expected, COUNTS, strict=True))
    actual = ClassWeights(beta=beta).weights(COUNTS)
    np.testing.assert_allclose(actual, [w * scale for w in expected], rtol=1e-5)


def test_class_weights_average_one_and_empty_classes_zero():
    for method in (ClassWeights(), ClassWeights("inverse")):
        weights = method.weights([3, 0, 90])
        assert weights[1] == 0
        assert weights @ [3, 0, 90] / 93 == pytest.approx(1, rel=1e-6)


def test_mixed_target_averages_class_weights():
    labels = torch.tensor([0, 2])
    targets = torch.stack([torch.tensor([0.25, 0.0, 0.75]), encode_one_hot(labels, 3)[1]])
    batch = Batch(torch.zeros(2), targets, labels, torch.tensor([1.0, 0.5]))
    by_class = ClassWeights().weights(COUNTS)
    weighted = ClassWeights().with_counts(COUNTS).transform_batch(batch, NOW)
    expected = [0.25 * by_class[0] + 0.75 * by_class[2], 0.5 * by_class[2]]
    np.testing.assert_allclose(weighted.weights, expected, rtol=1e-6)
    assert torch.equal(weighted.targets, targets)


def test_class_weights_count_images_also_in_resumed_runs(tmp_path):
    small = make_recipe("methods.class_weights.rule=inverse")
    facts = data.survey_images(small.data)
    (tmp_path / "data.json").write_text(facts.to_json())
    again = DataFacts.read(tmp_path / "data.json", str(facts.root))
    assert sum(again.class_images) == again.train_examples
    (method,) = make_plan(small, again, 1).new_stack()
    batch = Batch(torch.zeros(1), encode_one_hot(torch.tensor([0]), 10), torch.tensor([0]))
    assert method.transform_batch(batch, NOW).weights == pytest.approx(128 / 10 / 13)
    unknown = DataFacts("synthetic", tmp_path, 1, 1, ()).class_images
    assert method.with_counts(unknown).transform_batch(batch, NOW).weights is None

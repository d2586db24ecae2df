"""What stands before the first step."""

from collections.abc import Callable

import pytest
import torch


@pytest.mark.parametrize("wanted", [True, False])
def test_features_have_the_memory_format_of_the_recipe(wanted: bool, make_run: Callable):
    model = make_run(precision={"channels_last": wanted}).model
    seen = []
    model.layer2.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last))
    assert seen[0].is_contiguous(memory_format=torch.channels_last) is wanted

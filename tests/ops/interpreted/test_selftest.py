"""The self-test of the kernels, run in the Triton interpreter."""

import pytest
import torch

from resnet_recipes.ops import MODULES
from resnet_recipes.ops.selftest import find_mismatch
from tests.ops.interpreted.interpreted_kernels import register_kernels

CPU = torch.device("cpu")


@pytest.mark.parametrize("operation", MODULES.values(), ids=MODULES)
def test_kernels_pass_selftest_in_the_interpreter(operation, monkeypatch):
    """Use the last sample, in float16: the interpreter does not round to bfloat16."""
    samples = operation.make_samples
    monkeypatch.setattr(operation, "make_samples", lambda *arguments: [*samples(*arguments)][-1:])
    with torch.library._scoped_library("resnet_recipes", "IMPL") as library:
        register_kernels(library, operation)
        assert find_mismatch(operation, CPU, torch.float16, CPU) == ""

"""The self-test of the kernels, run in the Triton interpreter."""

import pytest
import torch

from resnet_recipes.ops import MODULES
from resnet_recipes.ops.selftest import find_mismatch

CPU = torch.device("cpu")


def register(library, operation):
    """Let a CPU run the kernels of an operation while `library` lives."""
    name = operation.__name__.split(".")[-1]
    library.impl(name, operation._forward_cuda, "CPU", allow_override=True)
    if hasattr(operation, "_backward_cuda"):
        library.impl(f"{name}_backward", operation._backward_cuda, "CPU", allow_override=True)


@pytest.mark.parametrize("operation", MODULES.values(), ids=MODULES)
def test_kernels_pass_selftest_in_the_interpreter(operation, monkeypatch):
    """Use the last sample, in float16: the interpreter does not round to bfloat16."""
    samples = operation.make_samples
    monkeypatch.setattr(operation, "make_samples", lambda *arguments: [*samples(*arguments)][-1:])
    with torch.library._scoped_library("resnet_recipes", "IMPL") as library:
        register(library, operation)
        assert find_mismatch(operation, CPU, torch.float16, CPU) == ""

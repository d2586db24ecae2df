"""The choice between fused operations and plain torch."""

from collections.abc import Iterator

import pytest
import torch

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes import ops
from resnet_recipes.ops import batch_norm, blur


@pytest.fixture(autouse=True)
def _clear_choice() -> Iterator[None]:
    ops.choose.cache_clear()
    yield
    ops.choose.cache_clear()


def test_choose_returns_unfused_operations_on_cpu():
    assert ops.choose(torch.device("cpu"), torch.float32) == ops.Operations()


def test_differing_operation_is_replaced_and_reported(monkeypatch):
    asked = []

    def try_operations(names, *arguments):
        asked.append(arguments)
        return {name: "no compiler" if name == "blur" else "" for name in names}

    monkeypatch.setattr(ops.trial, "get_verdicts", try_operations)
    arguments = torch.device("cuda"), torch.bfloat16
    operations = ops.choose(*arguments)
    assert ops.choose(*arguments) is operations
    assert asked == [
        arguments
    ]  # once per process, because retrying a failed operation takes seconds
    assert (operations.blur, operations.batch_norm) == (blur.unfused, batch_norm.fused)
    assert [("blur" in note, "no compiler" in note) for note in operations.notes] == [(True, True)]


@pytest.mark.parametrize("operation", ops.MODULES.values(), ids=ops.MODULES)
def test_fused_operations_reject_second_derivatives(operation):
    sample = next(operation.make_samples(torch.Generator().manual_seed(0), torch.float32))
    outputs = operation.fused(*sample.arguments)
    output = outputs[0] if isinstance(outputs, tuple) else outputs
    x = sample.arguments[0]
    (gradient,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()

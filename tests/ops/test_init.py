"""The choice between fused operations and plain torch."""

import pytest
import torch

from resnet_recipes import ops
from resnet_recipes.ops import batch_norm, blur


def test_a_cpu_gets_plain_torch():
    assert ops.choose(torch.device("cpu"), torch.float32) == ops.Operations()


def test_an_operation_that_differs_is_replaced_and_reported(monkeypatch):
    def verdicts(names, *_):
        return {name: "no compiler" if name == "blur" else "" for name in names}

    monkeypatch.setattr(ops.trial, "recall", verdicts)
    operations = ops.choose(torch.device("cuda"), torch.bfloat16)
    assert (operations.blur, operations.batch_norm) == (blur.plain, batch_norm.fused)
    assert [("blur" in note, "no compiler" in note) for note in operations.notes] == [(True, True)]


@pytest.mark.parametrize("operation", [batch_norm, blur])
def test_second_derivatives_are_refused(operation):
    sample = next(operation.samples(torch.Generator().manual_seed(0), torch.float32))
    outputs = operation.fused(*sample.arguments)
    output = outputs[0] if isinstance(outputs, tuple) else outputs
    x = sample.arguments[0]
    (gradient,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()

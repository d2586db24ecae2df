"""BatchNorm with residual sum and ReLU, as a registered operation, matches torch on a CPU."""

import pytest
import torch
import torch._dynamo.testing
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.norm import Epilogue, Norm, SavedTensors

#: A residual, a factor for each image, ReLU, two outputs.
PARAMETERS = ("add", "drop", "relu", "pair")
CASES = (
    (False, False, False, False),
    (False, False, True, True),
    (True, False, True, False),
    (True, True, True, True),
)


def make_arguments(
    add, drop, relu, pair, dtype=torch.float64
) -> tuple[torch.Tensor, Norm, Epilogue]:
    """Return the arguments of a call on a small feature map."""
    generator = torch.Generator().manual_seed(3)
    x, residual = torch.randn(2, 2, 4, 3, 5, generator=generator, dtype=dtype)
    weight, bias, mean = torch.randn(3, 4, generator=generator, dtype=dtype)
    norm = Norm(weight, bias, mean, weight.abs() + 0.5, torch.tensor(3), 0.1, 1e-5)
    keep = torch.tensor([0.0, 1.0]) if drop else None
    return x * 2 + 1, norm, Epilogue(residual if add else None, keep, relu, pair)


class BackwardRecorder(TorchDispatchMode):
    """Records for each backward pass of a BatchNorm whether a second output has a gradient."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.resnet_recipes.batch_norm_backward.default:
            self.seconds.append(args[1] is not None)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(PARAMETERS, CASES)
def test_batch_norm_outputs_and_statistics_match_torch(add, drop, relu, pair):
    arguments, copies = (make_arguments(add, drop, relu, pair) for _ in range(2))
    outputs = batch_norm.fused(*arguments)
    references = batch_norm.unfused(*copies)
    assert isinstance(outputs, tuple) == isinstance(references, tuple) == pair
    for output, reference in zip(outputs, references, strict=True):
        assert torch.allclose(output, reference, rtol=1e-12)
    # threads sum in a different order
    for statistic, reference in zip(arguments[1][2:5], copies[1][2:5], strict=True):
        assert torch.allclose(statistic, reference, rtol=1e-12)
    assert int(arguments[1].tracked) == 4


@pytest.mark.parametrize(PARAMETERS, CASES)
def test_batch_norm_gradients_pass_gradcheck(add, drop, relu, pair):
    x, norm, epilogue = make_arguments(add, drop, relu, pair)
    inputs = [x, norm.weight, norm.bias, *([epilogue.residual] if add else [])]

    def call(x, weight, bias, residual=None):
        mean, var, tracked = (tensor.clone() for tensor in norm[2:5])
        norm_copy = norm._replace(weight=weight, bias=bias, running_mean=mean, running_var=var)
        return batch_norm.fused(
            x, norm_copy._replace(tracked=tracked), epilogue._replace(residual=residual)
        )

    inputs = [tensor.requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


# every kind of argument and output
@pytest.mark.parametrize(PARAMETERS, [CASES[0], CASES[3]])
def test_batch_norm_registration_passes_opcheck(add, drop, relu, pair):
    x, norm, epilogue = make_arguments(add, drop, relu, pair, torch.float32)
    call = x, *norm, *epilogue[:-1]
    torch.library.opcheck(torch.ops.resnet_recipes.batch_norm.default, call)
    z, moments = torch.ops.resnet_recipes.batch_norm.default(*call)
    gradients = torch.ones_like(z), torch.ones_like(z) if pair else None
    saved = SavedTensors(x, z if add else None, epilogue.keep, *norm[:2], moments, relu)
    backward = (*gradients, *saved)
    torch.library.opcheck(torch.ops.resnet_recipes.batch_norm_backward.default, backward)


@pytest.mark.parametrize("used", [0, 1])
def test_fused_batch_norm_gradient_is_right_per_output(used):
    x, *rest = make_arguments(False, False, True, True)
    assert torch.autograd.gradcheck(
        lambda x: batch_norm.fused(x, *rest)[used], x.requires_grad_(), fast_mode=True
    )


@pytest.mark.slow
def test_batch_norm_of_all_sizes_compiles_one_graph():
    torch._dynamo.reset()
    norms = nn.BatchNorm2d(5).double(), nn.BatchNorm2d(5).double()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    def call(operation, module, x):
        norm = Norm.of(module)._replace(momentum=0.1, eps=1e-5)  # constants, not variables
        y = operation(x, norm, Epilogue(relu=True))
        y, again = operation(y, norm, Epilogue(relu=True, returns_pair=True))
        return operation(y, norm, Epilogue(again, relu=True)).square().sum()

    compiled = torch.compile(call, backend=counter, dynamic=True, fullgraph=True)
    for size in (11, 12, 14):
        x = torch.randn(4, 5, size, size, dtype=torch.float64, requires_grad=True)
        output = compiled(batch_norm.fused, norms[0], x)
        expected = call(batch_norm.unfused, norms[1], x)
        with BackwardRecorder() as backwards:
            (gradient,) = torch.autograd.grad(output, x)
        assert torch.allclose(gradient, torch.autograd.grad(expected, x)[0])
        # a compiled graph passes zeros for unused outputs
        assert backwards.seconds == [False, True, False]
    assert counter.frame_count == 1
    assert all(
        torch.allclose(a, b) for a, b in zip(*(norm.buffers() for norm in norms), strict=True)
    )

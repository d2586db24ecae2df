"""The blur, in plain torch and as a registered operation, against its definition."""

import pytest
import torch
import torch._dynamo.testing

from resnet_recipes.ops import blur
from tests.ops.cpu_operations import blur_by_definition, each_size, each_stride


@each_stride
@each_size
@pytest.mark.parametrize("implementation", [blur.unfused, blur.fused])
def test_every_blur_implementation_is_the_binomial_filter(implementation, size, stride):
    x = torch.randn(2, 5, *size, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    assert torch.allclose(
        implementation(x, stride), blur_by_definition(x, stride), rtol=0, atol=1e-15
    )
    assert implementation(x, stride).is_contiguous(memory_format=torch.channels_last)


@each_stride
@each_size
def test_fused_blur_has_correct_gradient(size, stride):
    x = torch.randn(1, 2, *size, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: blur.fused(x, (stride, stride)), (x,))


def test_blur_stride_without_kernel_falls_back_to_torch():
    x = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    assert torch.allclose(
        blur.fused(x, (2, 1)), blur_by_definition(x)[:, :, ::2], rtol=0, atol=1e-15
    )


@each_stride
def test_blur_registration_passes_opcheck(stride):
    x = torch.randn(2, 3, 8, 7)
    torch.library.opcheck(torch.ops.resnet_recipes.blur.default, (x, stride))
    g = blur.fused(x, stride)
    torch.library.opcheck(torch.ops.resnet_recipes.blur_backward.default, (g, stride, 8, 7))


def test_unfused_bf16_strided_blur_rounds_once():
    # multiples of 1/64 below 4: every sum is exact in float32, so only the final rounding matters;
    # the bf16 gradient of torch rounds after each term on a CPU without AVX-512 BF16
    x = (torch.randint(-255, 256, (2, 8, 9, 12)) / 64).bfloat16().requires_grad_()
    exact = x.detach().double().requires_grad_()
    upstream = (torch.randint(-255, 256, (2, 8, 5, 6)) / 64).bfloat16()
    expected = blur_by_definition(exact, 2)
    with torch.autocast("cpu", torch.bfloat16):
        ours = blur.unfused(x, 2)
    assert torch.equal(ours, expected.bfloat16())
    gradient = torch.autograd.grad(expected, exact, upstream.double())[0]
    assert torch.equal(torch.autograd.grad(ours, x, upstream)[0], gradient.bfloat16())
    blurred = ours.grad_fn.next_functions[0][0]
    assert blurred.name() == "ConvolutionBackward0", "it was not computed in float32"

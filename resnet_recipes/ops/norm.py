"""The arguments of a fused BatchNorm, in the forward and the backward pass."""

from typing import NamedTuple

from torch import Tensor, nn


class Norm(NamedTuple):
    """The tensors and settings of a BatchNorm; a call updates the statistics and the count."""

    weight: Tensor  # [C]
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    tracked: Tensor  # int64 scalar, the number of batches
    momentum: float
    eps: float

    @classmethod
    def of(cls, module: nn.BatchNorm2d) -> "Norm":
        """Return the tensors and settings of a module."""
        parameters = module.weight, module.bias
        buffers = module.running_mean, module.running_var, module.num_batches_tracked
        return cls(*parameters, *buffers, module.momentum, module.eps)


class Epilogue(NamedTuple):
    """The steps fused after a BatchNorm: factors, sum and ReLU, in this order."""

    residual: Tensor | None = None  # [N, C, H, W], to be added
    keep: Tensor | None = None  # float32 [N], a factor for each image, applied before the sum
    relu: bool = False
    returns_pair: bool = False  # return the output twice, once per consumer


class SavedTensors(NamedTuple):
    """The tensors that the backward pass needs."""

    x: Tensor
    z: Tensor | None  # the output if a residual was added, else None
    keep: Tensor | None
    weight: Tensor
    bias: Tensor
    moments: Tensor  # [2, C], mean and 1 / standard deviation
    relu: bool

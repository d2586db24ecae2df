"""A training loop as a good engineer writes it without this package: the baseline to beat."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from runs import OneBatchLoader, Steps
from torch import Tensor, nn

from resnet_recipes.data.base import MEAN, STD

CPU_BACKEND = "eager"  # compiler backend that generates no code, for tests of the session


class MasterWeights:
    """Float32 weights for the optimizer; the network computes with copies in a smaller dtype."""

    def __init__(self, model: nn.Module, dtype: torch.dtype):
        kinds = () if dtype == torch.float32 else (nn.Conv2d, nn.Linear)
        self.copies = [
            weight
            for module in model.modules()
            if isinstance(module, kinds)
            for weight in module.parameters(recurse=False)
        ]
        self.masters = [weight.detach().clone() for weight in self.copies]
        for weight in self.copies:
            weight.data = weight.data.to(dtype)
        copies = set(self.copies)
        self.trained = [*self.masters, *(p for p in model.parameters() if p not in copies)]

    def move_gradients(self) -> None:
        """Move the gradients of the copies to the float32 weights."""
        for master, weight in zip(self.masters, self.copies, strict=True):
            master.grad = weight.grad.float()
            weight.grad = None

    def update_copies(self) -> None:
        """Copy the float32 weights to the copies that the network computes with."""
        if self.copies:
            torch._foreach_copy_([weight.data for weight in self.copies], self.masters)


def make_handwritten_loop(
    model: nn.Module,
    loader: OneBatchLoader,
    device: torch.device,
    dtype: torch.dtype,
    mode: str = "",
) -> Steps:
    """Return a loop with channels_last, copies of the weights in `dtype` and fused SGD.

    cuDNN searches for its fastest algorithms. `mode` compiles normalization, network and loss as
    one function: a mode of torch.compile.
    """
    torch.backends.cudnn.benchmark = True
    model = model.to(device, memory_format=torch.channels_last).train()
    weights = MasterWeights(model, dtype)
    normalize = make_normalizer(device)
    optimizer = torch.optim.SGD(
        weights.trained, lr=0.01, momentum=0.9, weight_decay=5e-5, fused=True
    )

    def compute_loss(pixels: Tensor, labels: Tensor) -> Tensor:
        images = normalize(pixels).to(dtype)
        # autocast casts tensors without a copy in this dtype, such as the blurs in timm
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            output = model(images)
        return F.cross_entropy(output.float(), labels, label_smoothing=0.1)

    if mode:
        compute_loss = _compile(compute_loss, device, mode)

    def take_steps(steps: int) -> None:
        for _ in range(steps):
            compute_loss(loader.batch.pixels, loader.batch.labels).backward()
            weights.move_gradients()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            weights.update_copies()

    return take_steps


def make_normalizer(device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function that converts pixels to normalized float32 images."""
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))
    return lambda pixels: (pixels.float() - mean) / std


def _compile(function: Callable, device: torch.device, mode: str) -> Callable:
    if device.type == "cpu":
        return torch.compile(function, backend=CPU_BACKEND)
    return torch.compile(function, mode=mode, dynamic=False)

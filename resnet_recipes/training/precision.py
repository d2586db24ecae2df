"""Mixed precision: the compute dtype, and the safeguards that float16 needs."""

import math

import torch
from torch import Tensor, nn

from resnet_recipes.base.errors import Command, Hint, TrainingError
from resnet_recipes.methods.optimizers.base import Scaling, read_scaling

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

#: Smallest usable loss scale: below it float16 gradients vanish, and the run has failed.
MIN_SCALE = 2.0**-10


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of `precision.dtype`.

    auto is fp32 on a CPU, bf16 on a GPU that supports it, and fp16 on other GPUs.
    """
    if name != "auto":
        return DTYPES[name]
    if device.type != "cuda":
        return torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16


#: Fix for numbers that are not finite: their usual causes, and a check of the images.
NOT_FINITE_FIX = (
    Hint(
        "usual causes are a learning rate that is too high (halve optimizer.lr), a warm-up that "
        "is too short, or damaged images"
    ),
    Command("resnet-recipes doctor data PATH"),
)


class Precision:
    """Autocast for the forward pass and, for float16, loss scaling and safe BatchNorm statistics.

    Float16 skips a step whose gradient overflows, but the overflow has already reached the running
    statistics and would stay there (pytorch/pytorch#88474). The statistics are copied before the
    step. If the step is skipped, they are restored, without waiting for the device.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, model: nn.Module):
        self.device, self.dtype = device, dtype
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        buffers = model.buffers() if self.scaler.is_enabled() else ()
        self._statistics = [b for b in buffers if b.is_floating_point()]
        self._copy = self._flatten_statistics() if self._statistics else None

    def autocast(self) -> torch.autocast:
        """Return the context for a forward pass."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss` to `.grad`, scaled if the dtype needs it."""
        self.scaler.scale(loss).backward()

    def copy_statistics(self) -> None:
        """Copy the running statistics before the first forward pass of a step, only for float16."""
        if self._statistics:
            torch.cat([b.flatten() for b in self._statistics], out=self._copy)

    def step_optimizer(self, optimizer: torch.optim.Optimizer, clip_norm: float | None) -> None:
        """Clip the global L2 norm of the gradient to `clip_norm` and take an optimizer step.

        With loss scaling, skips the step if a gradient overflowed.
        """
        if clip_norm is not None:
            self.scaler.unscale_(optimizer)
            params = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(params, clip_norm, foreach=True)
        if not self.scaler.is_enabled():
            optimizer.step()
            return
        scalings: list[Scaling] = []
        hook = optimizer.register_step_pre_hook(
            lambda optimizer, *_: scalings.append(read_scaling(optimizer))
        )
        self.scaler.step(optimizer)
        hook.remove()
        overflow = scalings[0].overflow  # if a step calls its parent class's step, there are two
        self.scaler.update()
        if self._copy is not None:
            assert overflow is not None, "the scaler sets it"
            statistics = torch.where(overflow == 0, self._flatten_statistics(), self._copy)
            parts = statistics.split([b.numel() for b in self._statistics])
            torch._foreach_copy_([b.view(-1) for b in self._statistics], list(parts))

    def check(self, losses: list[float], step: int) -> None:
        """Raise TrainingError if the losses logged up to `step` show that training failed.

        With loss scaling, waits for the device.
        """
        if self.scaler.is_enabled():
            if self.scaler.get_scale() < MIN_SCALE:
                raise TrainingError(
                    f"float16 gradients overflow at every step up to {step} at any loss scale",
                    (
                        *NOT_FINITE_FIX,
                        Hint("bf16 and fp32 have the range that float16 lacks"),
                        "precision.dtype=fp32",
                    ),
                )
            return  # occasional float16 overflows are expected; those steps were skipped
        for number, loss in enumerate(losses, step - len(losses) + 1):
            if not math.isfinite(loss):
                statement = f"the loss is not a finite number at step {number}"
                raise TrainingError(statement, NOT_FINITE_FIX)

    def state_dict(self) -> dict[str, float]:
        """Return the loss scale's state, for the checkpoint."""
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the result of `state_dict`; has no effect without loss scaling."""
        if state and self.scaler.is_enabled():
            self.scaler.load_state_dict(state)

    def _flatten_statistics(self) -> Tensor:
        return torch.cat([b.flatten() for b in self._statistics])

"""Mixed precision: which type the network computes in, and what float16 needs to be safe."""

import torch
from torch import Tensor, nn

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.optim.base import shown_by_scaler

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

#: Below this loss scale float16 gradients vanish: the run is broken.
SMALLEST_SCALE = 2.0**-10


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of `precision.dtype`.

    auto is fp32 on a CPU, bf16 on a GPU that supports it, else fp16.
    """
    if name != "auto":
        return DTYPES[name]
    if device.type != "cuda":
        return torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16


#: What to check when a number is not finite.
BROKEN = (
    "usual causes are a learning rate that is too high (halve it: optimizer.lr=...), a warm-up "
    "that is too short, or damaged images (resnet-recipes doctor data PATH)"
)


class Precision:
    """Autocast for the forward pass and, for float16, loss scaling and safe BatchNorm statistics.

    Float16 skips a step whose gradient overflows, but by then the overflow is in the running
    statistics, where it would stay for ever (pytorch/pytorch#88474). They are copied before the
    step and restored, without waiting for the device, if it is skipped.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, model: nn.Module):
        self.device, self.dtype = device, dtype
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        self._live = (
            [b for b in model.buffers() if b.is_floating_point()]
            if self.scaler.is_enabled()
            else []
        )
        # one flat copy
        self._kept = torch.cat([b.flatten() for b in self._live]) if self._live else None

    def autocast(self) -> torch.autocast:
        """Return the context for a forward pass."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss` to `.grad`, scaled if the type needs it."""
        self.scaler.scale(loss).backward()

    def before_step(self) -> None:
        """Save the running statistics, before the first forward pass of a step."""
        if self._live:
            torch.cat([b.flatten() for b in self._live], out=self._kept)

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float | None) -> None:
        """Take an optimizer step, clipping the whole gradient's L2 norm to `clip_norm`.

        Skip it after an overflow.
        """
        if clip_norm is not None:
            self.scaler.unscale_(optimizer)
            params = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(params, clip_norm, foreach=True)
        if not self.scaler.is_enabled():
            optimizer.step()
            return
        shown: list[tuple[Tensor | None, Tensor | None]] = []
        hook = optimizer.register_step_pre_hook(
            lambda optimizer, *_: shown.append(shown_by_scaler(optimizer))
        )
        self.scaler.step(optimizer)
        hook.remove()
        _, overflow = shown[0]  # a step that calls another class's has it shown twice
        self.scaler.update()
        if self._live:
            now = torch.cat([b.flatten() for b in self._live])
            right = torch.where(overflow == 0, now, self._kept).split(
                [b.numel() for b in self._live]
            )
            torch._foreach_copy_([b.view(-1) for b in self._live], list(right))

    def check(self, losses: list[float], step: int) -> None:
        """Raise TrainingError if the losses logged up to `step` show that training is broken.

        Waits for the device.
        """
        broken = [
            step - len(losses) + i for i, loss in enumerate(losses) if not abs(loss) < float("inf")
        ]
        if self.scaler.is_enabled():
            if self.scaler.get_scale() < SMALLEST_SCALE:
                raise TrainingError(
                    f"float16 gradients overflow at every step up to {step} at any loss scale; "
                    f"{BROKEN}; bf16 and fp32 have the range that float16 lacks "
                    "(precision.dtype=...)"
                )
            return  # float16 overflows now and then by design; those steps were skipped
        if broken:
            raise TrainingError(
                f"the loss has not been a finite number since step {broken[0]}; {BROKEN}"
            )

    def state_dict(self) -> dict[str, float]:
        """Return the loss scale's state, for the checkpoint."""
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what `state_dict` returned; ignored by a run without loss scaling."""
        if state and self.scaler.is_enabled():
            self.scaler.load_state_dict(state)

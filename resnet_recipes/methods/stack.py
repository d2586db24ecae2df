"""Combine the methods of a recipe into one object with all their hooks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from resnet_recipes.augment import ImageAugment, NativeOperation
from resnet_recipes.base.errors import Change, Problem, Statement
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.base import (
    EXCLUSIVE_HOOKS,
    HOOKS,
    Batch,
    Compute,
    Method,
    Now,
)


class Stack:
    """The enabled methods in the order of `methods.ORDER`; unused hooks cost nothing."""

    def __init__(self, methods: Mapping[str, Method]):
        self.methods = {
            method.name: methods[method.name] for method in ORDER if method.name in methods
        }
        #: Whether the forward pass in training uses the torch generator.
        self.is_random_in_forward = any(method.is_random_in_forward for method in self)
        self._batch_hooks = self._collect("transform_batch")
        self._step_hooks = self._collect("after_step")
        self._loss_hooks = self._collect("change_loss")
        #: The loss of each example, float32 [N], given logits and targets [N, K].
        self.loss: Callable[[Tensor, Tensor], Tensor] = self._get_only(
            "loss", partial(F.cross_entropy, reduction="none")
        )
        #: Write the gradient for the optimizer to `.grad`; return the losses [N].
        self.gradient: Callable[[Compute, list[Tensor], Now], Tensor] = self._get_only(
            "gradient", lambda compute, params, now: compute()
        )
        #: Context for evaluation and export.
        self.eval_weights: Callable[[nn.Module], AbstractContextManager[None]] = self._get_only(
            "eval_weights", nullcontext
        )

    @classmethod
    def of(
        cls, methods: Any, augments_images: bool = True, class_images: Sequence[int] = ()
    ) -> "Stack":
        """Build the stack of a recipe's `methods` section.

        `augments_images` is true if the loader can run `augment_image` on every image. If not,
        methods that need it are omitted. `class_images` are the numbers of training images per
        class, if known.
        """
        return cls(
            {
                name: method.with_counts(class_images)
                for name, method in vars(methods).items()
                if method is not None and (augments_images or not method.provides("augment_image"))
            }
        )

    def augment_image(self) -> ImageAugment | None:
        """Return the function that a loader worker applies to each image, or None."""
        augments = tuple(augment() for augment in self._collect("augment_image"))
        if not augments:
            return None
        is_native = all(hasattr(augment, "sample_operations") for augment in augments)
        return _NativeChain(augments) if is_native else _Chain(augments)

    def modify_model(self, model: nn.Module) -> None:
        """Let each method change the network, in place."""
        for modify in self._collect("modify_model"):
            modify(model)

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        """Return the batch as each method in turn changes it."""
        for transform in self._batch_hooks:
            batch = transform(batch, now)
        return batch

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the losses of a micro-batch, float32 [N], before they are weighted."""
        logits = logits.float()  # cast once for all losses
        losses = self.loss(logits, batch.targets)
        for change in self._loss_hooks:
            losses = change(losses, logits, batch)
        return losses

    def after_step(self, model: nn.Module, now: Now) -> None:
        """Call the `after_step` of each method."""
        for act in self._step_hooks:
            act(model, now)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of all methods, keyed "method.key"."""
        return {
            f"{name}.{key}": tensor
            for name, method in self.methods.items()
            for key, tensor in method.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the tensors returned by `state_dict`."""
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in self.methods}
        for key, tensor in state.items():
            name, _, rest = key.partition(".")
            if name not in parts:
                raise ValueError(f"the checkpoint has tensors of {name}, which is off")
            parts[name][rest] = tensor
        for name, method in self.methods.items():
            method.load_state_dict(parts[name])

    def __iter__(self) -> Iterator[Method]:
        return iter(self.methods.values())

    def convolution_stride(self, stride: int, inputs: int) -> int:
        for method in self:
            stride = method.convolution_stride(stride, inputs)
        return stride

    def group_by_hook(self) -> dict[str, list[str]]:
        """Return the methods at each used hook: {"gradient": ["sam (every 5 steps)"]}."""
        rows = {
            hook: [_make_label(method) for method in self if method.provides(hook)]
            for hook in HOOKS
        }
        return {hook: labels for hook, labels in rows.items() if labels}

    def problems(self) -> Iterator[Problem]:
        """Yield the problems with the combination; keys are relative to `methods`."""
        for hook in HOOKS:
            names = [method.name for method in self if method.provides(hook)]
            if hook in EXCLUSIVE_HOOKS and len(names) > 1:
                clause = Statement(
                    f"{' and '.join(names)} both define the {hook}, but only one method may"
                )
                yield Problem(names[1], None, clause, Change(f"~methods.{names[1]}"))
        for name, other in permutations(self.methods, 2):
            group = self.methods[name].group
            if name < other and group and group == self.methods[other].group:
                rule = f"cannot be combined with {name}, as both {group}"
                yield Problem(other, None, rule, Change(f"~methods.{name}"))

    def _get_only(self, hook: str, default: Callable) -> Any:
        return next(iter(self._collect(hook)), default)

    def _collect(self, hook: str) -> tuple[Callable, ...]:
        return tuple(getattr(method, hook) for method in self if method.provides(hook))


def _make_label(method: Method) -> str:
    frequency = method.describe_frequency()
    return f"{method.name} ({frequency})" if frequency else method.name


@dataclass(frozen=True)
class _Chain:
    """Several augmentations applied to one image in turn; picklable if they are."""

    augments: tuple[ImageAugment, ...]

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        for augment in self.augments:
            image = augment(image, rng)
        return image


class _NativeChain(_Chain):
    """Augmentations that the native decoder can run."""

    augments: tuple[Any, ...]  # augmentations with a method sample_operations

    def sample_operations(self, image_size: int, rng: np.random.Generator) -> list[NativeOperation]:
        return [
            operation
            for augment in self.augments
            for operation in augment.sample_operations(image_size, rng)
        ]

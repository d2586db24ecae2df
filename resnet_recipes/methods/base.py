"""The base class of speed-up methods.

A method is a dataclass of hyperparameters that overrides the hooks it needs.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.duration import Horizon
from resnet_recipes.base.errors import Note, Problem
from resnet_recipes.base.section import Section

#: Every point in a run where a method can act, in the order of the data: loading, the network, a
#: step, and evaluation.
HOOKS = (
    "augment_image",
    "modify_model",
    "transform_batch",
    "loss",
    "change_loss",
    "gradient",
    "after_step",
    "eval_weights",
)

#: Hooks that at most one method of a recipe may provide.
EXCLUSIVE_HOOKS = frozenset({"loss", "gradient", "eval_weights"})

#: Images per forward pass of a teacher; limits its memory.
TEACHER_BATCH_SIZE = 128


class Batch(NamedTuple):
    """The examples of one optimizer step on one rank, ready for the model."""

    images: Tensor  # float32 [N, 3, H, W], normalized, channels_last memory
    targets: Tensor  # float32 [N, K], each row sums to one
    labels: Tensor  # int64 [N], the true classes, never changed by methods
    weights: Tensor | None = None  # float32 [N], factors on the losses; None: all are 1
    soft_labels: Tensor | None = None  # float32 [N, K], a teacher's probabilities

    @classmethod
    def of(
        cls, images: Tensor, labels: Tensor, num_classes: int, soft_labels: Tensor | None = None
    ) -> "Batch":
        """Return a batch of images and one-hot targets, before any method changes it."""
        return cls(images, encode_one_hot(labels, num_classes), labels, soft_labels=soft_labels)

    def mix_soft_labels(self, partner: Callable[[Tensor], Tensor], weight: float) -> Tensor | None:
        """Return the soft labels of mixed images; partners have this weight."""
        return (
            None
            if self.soft_labels is None
            else self.soft_labels.lerp(partner(self.soft_labels), weight)
        )

    def split(self, parts: int) -> Iterator["Batch"]:
        """Yield `parts` micro-batches of equal size, as views."""
        pieces = self.map(lambda tensor: tensor.chunk(parts))
        return (pieces.map(itemgetter(i)) for i in range(parts))

    def map(self, change: Callable[[Any], Any]) -> "Batch":
        """Return a batch with `change` applied to every field that is not None."""
        return Batch._make(None if field is None else change(field) for field in self)


class Now(NamedTuple):
    """The point in the run when a hook is called, and this rank's random generator for the step."""

    step: int  # steps completed before this one
    horizon: Horizon
    # depends only on seed, rank and step, so a resumed step repeats it without saved state
    rng: np.random.Generator

    @classmethod
    def at(cls, step: int, total_steps: int, steps_per_epoch: int, seed: int = 0) -> "Now":
        """Return the `Now` of a step in your own training loop, counted from 0.

        `rng` depends only on `seed` and `step`, so each rank needs its own `seed`.
        """
        return cls(step, Horizon(total_steps, steps_per_epoch), np.random.default_rng((seed, step)))

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.horizon.steps_per_epoch


class Compute(Protocol):
    """A function that adds the gradient of this step's batch to `.grad`."""

    def __call__(self, sync: bool = True) -> Tensor:
        """Add the gradient, averaged over ranks if `sync`, otherwise local to the rank.

        Returns the losses of this rank's images, detached float32 [N], before they are weighted.
        """


class Method(Section):
    """A speed-up technique. A hook that a method does not override is never called.

    Subclasses are dataclasses; their fields are the schema of `methods.<name>` in a recipe. Each
    hook runs for all methods in the order of `methods.ORDER`. Methods never see the trainer.
    """

    name: ClassVar[str]  # key in the recipe
    # The card of the method prints these four.
    cost: ClassVar[str]  # added time and memory
    gain: ClassVar[str]  # published gains, with sources
    avoid_when: ClassVar[str]  # when to omit the method
    inference: ClassVar[str] = "costs nothing."  # added inference cost
    group: ClassVar[str] = ""  # what only one of several methods may do, such as "mix images"
    # its modules use the global torch generator, which is then seeded at every step
    is_random_in_forward: ClassVar[bool] = False
    in_network: ClassVar[bool] = False  # inference needs its modules; weights files record it
    blurs: ClassVar[bool] = False  # blurs before the network downsamples
    extra_weights: ClassVar[int] = 0  # additional copies of the weights on the device
    # setting that names a trained network: a run, a file, timm:NAME or hf:USER/NAME
    network_setting: ClassVar[str] = ""
    # setting that names a file of that network's outputs, instead of the network
    soft_labels_setting: ClassVar[str] = ""
    # changes of transform_batch, which decide whether a teacher's outputs can be stored:
    # - "images": the pixels, in each batch; outputs cannot be stored
    # - "sizes": the image size, by epoch; outputs depend on it
    # - "labels" (targets, weights) and "mixes" (of images and their outputs); outputs stay valid
    changes: ClassVar[str] = "images"
    makes_steps_cheaper: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._prefix = f"methods.{getattr(cls, 'name', '')}."

    def augment_image(self) -> ImageAugment:
        """Return the function that a loader worker applies to each image after crop and flip."""
        raise NotImplementedError

    def modify_model(self, model: nn.Module) -> None:
        """Change the model in place. It may have no values (a plan builds it on the meta device).

        Training may be replayed as a CUDA graph, so anything that changes between steps must be a
        buffer updated in place.
        """
        raise NotImplementedError

    def find_network_problems(self, model: nn.Module) -> Iterator[Problem]:
        """Yield the reasons why the method cannot change a library network.

        Keys are relative to `methods`. The network may have no values.
        """
        return iter(())

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        """Return the transformed batch, with the same N, dtypes, device and memory format.

        Runs without gradients.
        """
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, float32 [N], given logits and targets [N, K].

        Default: softmax cross-entropy. Training minimizes their weighted mean.
        """
        raise NotImplementedError

    def change_loss(self, losses: Tensor, logits: Tensor, batch: Batch) -> Tensor:
        """Return the changed losses, float32 [N], for a micro-batch with these logits [N, K]."""
        raise NotImplementedError

    def gradient(self, compute: Compute, params: list[Tensor], now: Now) -> Tensor:
        """Write the gradient for the optimizer to `.grad`, and return the losses [N].

        Default: `compute()`.
        """
        raise NotImplementedError

    def after_step(self, model: nn.Module, now: Now) -> None:
        """Act after an optimizer step; `now.step` is still the index of that step."""
        raise NotImplementedError

    def eval_weights(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context that gives `model` its evaluation weights.

        On exit the training weights are restored.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Tensor]:
        """Return the method's tensors for the checkpoint; called on every rank.

        Only methods with state override this.
        """
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the tensors returned by `state_dict`.

        Raises ValueError if a method without state is given any.
        """
        if state:
            raise ValueError(f"{self.name} keeps no state, but the checkpoint has {sorted(state)}")

    def provides(self, hook: str) -> bool:
        """Return whether this method acts at `hook` with its current settings.

        Default: whether the method overrides the hook.
        """
        return getattr(type(self), hook) is not getattr(Method, hook)

    def with_counts(self, class_images: Sequence[int]) -> "Method":
        """Return this method, given the number of training images per class; empty if unknown."""
        return self

    def take_network(self, compute_logits: Callable[[Tensor], Tensor]) -> None:
        """Keep the network of `network_setting`.

        `compute_logits` maps normalized images to float32 [N, K], without gradients.
        """
        raise NotImplementedError

    def describe_frequency(self) -> str:
        """Return how often the method acts, such as "every 5 steps"; "" is the default."""
        return ""

    @property
    def extra_gradient_every(self) -> int:
        """Interval between second gradients, in steps; 0 without second gradients."""
        return 0

    def loaded_size(self, image_size: int, epoch: int, horizon: Horizon) -> int:
        """Return the size of the loader's crops in an epoch, in pixels; default `image_size`."""
        return image_size

    def size_after(self, image_size: int, epoch: int, horizon: Horizon) -> int:
        """Return the image size after `transform_batch` in an epoch, in pixels.

        `image_size` is the size before it.
        """
        return image_size

    def convolution_stride(self, stride: int, inputs: int) -> int:
        """Return the stride at which a convolution with `inputs` input channels is computed."""
        return stride

    def format_late_override(self, fraction: Fraction) -> str:
        """Return settings that restrict image size changes to the last `fraction` of a run.

        By default, they turn the method off.
        """
        return f"'~methods.{self.name}'"

    def advice(self, horizon: Horizon, full_size: int, others: Collection[str]) -> Iterator[Note]:
        """Yield advice on the settings.

        `full_size` is the image size before any method, `others` are the enabled methods.
        """
        return iter(())

    def suggest_faster_loading(self) -> str:
        """Return the setting that reduces the work of the loader; "" if there is none."""
        return ""


def encode_one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Return int64 [N] labels as float32 [N, K] targets.

    Unlike torch.nn.functional.one_hot, it never waits for the device.
    """
    targets = torch.zeros(len(labels), num_classes, device=labels.device)
    return targets.scatter_(1, labels.unsqueeze(1), 1.0)


def select_pixels(images: Tensor, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    """Return only these rows and columns of [N, C, H, W] images, still channels_last."""
    indices = copy_to_device(np.concatenate([rows, columns]), images.device)
    y, x = indices.split([len(rows), len(columns)])
    # indexing the NHWC view keeps channels_last memory; index_select on the NCHW view would not
    lines = images.permute(0, 2, 3, 1).index_select(1, y).index_select(2, x)
    return lines.permute(0, 3, 1, 2)


def copy_to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy a small array to `device` as a tensor, without waiting for the device."""
    tensor = torch.from_numpy(array)
    tensor = tensor.pin_memory() if device.type == "cuda" else tensor
    return tensor.to(device, non_blocking=True)

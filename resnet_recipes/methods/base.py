"""What a speed-up method is: a dataclass of hyperparameters that overrides the hooks it needs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from resnet_recipes.duration import Horizon
from resnet_recipes.errors import Problem
from resnet_recipes.ops import Operations

#: Every place in a run where a method can act, in the order in which a run reaches them.
HOOKS = (
    "augment_sample", "modify_model", "augment_pixels", "transform_batch",
    "loss", "gradient", "after_step", "eval_weights",
)

#: Hooks that only one method of a recipe may provide.
EXCLUSIVE_HOOKS = frozenset({"loss", "gradient", "eval_weights"})

#: One decoded RGB image and the image's own randomness in; an image of the same size out. Runs in loader workers and
#: must pickle.
SampleAugment = Callable[[Image.Image, np.random.Generator], Image.Image]


class Batch(NamedTuple):
    """One optimizer step's examples on one rank, ready for the model.

    In training, methods that take drafts get images that are yet to be made (`ops.images.Draft`), the others float32;
    the model gets them in the type that it computes in.
    """

    images: Tensor        # float32 [N, 3, H, W], normalised, channels_last memory
    targets: Tensor       # float32 [N, K], rows sum to one
    labels: Tensor        # int64 [N], the true classes; no method changes them

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, num_classes: int) -> "Batch":
        """Return images and their classes as a batch, before any method has changed it."""
        return cls(images, one_hot(labels, num_classes), labels)

    def split(self, parts: int) -> Iterator["Batch"]:
        """Yield `parts` micro-batches of equal size, as views."""
        pieces = zip(*(tensor.chunk(parts) for tensor in self), strict=True)
        return (Batch(*piece) for piece in pieces)


class Now(NamedTuple):
    """Where in the run a hook is called, and the randomness of that step on this rank."""

    step: int             # steps completed before this one
    horizon: Horizon
    rng: np.random.Generator      # a function of (seed, rank, step): nothing to save, and a resumed step repeats it

    @classmethod
    def at(cls, step: int, total_steps: int, steps_per_epoch: int, seed: int = 0) -> "Now":
        """Return a step of a loop of your own, counted from 0."""
        return cls(step, Horizon(total_steps, steps_per_epoch), np.random.default_rng((seed, step)))

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.step // self.horizon.steps_per_epoch

    @property
    def elapsed(self) -> Fraction:
        """Share of the run completed, constant within an epoch."""
        return Fraction(self.epoch * self.horizon.steps_per_epoch, self.horizon.total_steps)


class Compute(Protocol):
    """Add the gradient of this step's batch to `.grad`; return this rank's mean loss, a detached float32 scalar."""

    def __call__(self, sync: bool = True) -> Tensor:
        """Average the gradient over ranks if `sync`, else leave it local to the rank."""


class Method:
    """A speed-up technique. A hook that a method does not override is never called.

    Subclasses are dataclasses: the fields are the schema of `methods.<name>` in a recipe, and the object that runs.
    Hooks of one kind run in the order of `methods.ORDER`. Methods never see the trainer.
    """

    name: ClassVar[str]                                    # its key in a recipe
    cost: ClassVar[str]                                    # its card: time and memory
    gain: ClassVar[str]                                    # what others measured, with the source
    hurts: ClassVar[str]                                   # when to leave it out
    conflicts: ClassVar[frozenset[str]] = frozenset()      # names of methods it cannot be combined with
    draws_in_forward: ClassVar[bool] = False               # its modules use torch's generator: seed it every step
    operations: ClassVar[Operations] = Operations()        # torch's own, or those that `Stack.use` chose for a GPU
    takes_drafts: ClassVar[bool] = False                   # its transform_batch takes images that are yet to be made
    in_network: ClassVar[bool] = False                     # the weights need its modules at inference: files say so

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the hyperparameters; keys are relative to the method ("alpha")."""
        return iter(())

    def augment_sample(self) -> SampleAugment:
        """Return what a loader worker does to one decoded image, after crop and flip."""
        raise NotImplementedError

    def modify_model(self, model: nn.Module) -> None:
        """Change the model in place: after initialisation, before placement, compilation and the optimizer.

        Training may be replayed as a CUDA graph: what changes from step to step has to be a buffer, filled in place.
        """
        raise NotImplementedError

    def augment_pixels(self, pixels: Tensor, now: Now) -> Tensor:
        """Return the step's images changed before normalisation: uint8 [N, 3, H, W], channels_last, on the device."""
        raise NotImplementedError

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        """Return the step's batch changed, without gradient; N, dtypes, device and channels_last are kept."""
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss, a scalar: the mean over N of [N, K] logits and targets. Default: softmax cross-entropy."""
        raise NotImplementedError

    def gradient(self, compute: Compute, params: list[Tensor], now: Now) -> Tensor:
        """Leave in `.grad` what the optimizer is to use, and return the loss. Default: `compute()`."""
        raise NotImplementedError

    def after_step(self, model: nn.Module, now: Now) -> None:
        """Act after an optimizer step; `now.step` is still the index of that step."""
        raise NotImplementedError

    def eval_weights(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context with other weights in `model`, to evaluate and export; it restores the training weights."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Tensor]:
        """Return the method's own tensors for the checkpoint; only methods that keep any override this."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise ValueError(f"{self.name} keeps no state, but the checkpoint has {sorted(state)}")

    def provides(self, hook: str) -> bool:
        """Tell whether this method, set as it is, acts at `hook`. Default: it overrides it."""
        return getattr(type(self), hook) is not getattr(Method, hook)

    def resolved(self, sample_ops: bool) -> "Method":
        """Return this method with every `auto` decided; `sample_ops`: the loader runs `augment_sample`."""
        return self

    def note(self) -> str:
        """Return what a hook table adds to the name ("every 5th step"), or ""."""
        return ""


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Return int64 [N] labels as float32 [N, K] targets, without reading labels back to check them, as torch does."""
    targets = torch.zeros(len(labels), num_classes, device=labels.device)
    return targets.scatter_(1, labels.unsqueeze(1), 1.0)

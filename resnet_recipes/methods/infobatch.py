"""InfoBatch: images of small loss are shown less often, and count more when they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from resnet_recipes.base.duration import decimal
from resnet_recipes.base.errors import Problem, TrainingError
from resnet_recipes.methods.base import Batch, Compute, Method, Now
from resnet_recipes.methods.host import send

_START = 3.0  # an image's loss before its first step, as in the authors' code
_MIXTURE = "the loss of a mixture belongs to no single image"


@dataclass
class InfoBatch(Method):
    """Show images of small loss less often (Qin et al., 2024, arXiv:2303.04947).

    In each epoch, `skip` of the images whose last loss was below the mean are left out, drawn at
    random, before anything of them is read. The losses of the others below the mean count 1 / (1 -
    skip) times, so that the gradient is that of all images on average. Images are left out in
    epochs that end by `until`; those after it show all. One thing differs from the authors' code:
    an epoch keeps its number of steps, and begins a second pass over the images, with others left
    out, where theirs ends early. So the run's length is known before it starts, and `epochs` says
    how long it is: with a third of the images left out, 60 epochs make the passes of 90.
    """

    name: ClassVar[str] = "infobatch"
    cost: ClassVar[str] = (
        "20 bytes of memory for each training image; at the start of every epoch the loader and "
        "the device wait for each other once."
    )
    gain: ClassVar[str] = (
        "about 40 % less cost for ResNet-50 on ImageNet at the same accuracy (the paper). "
        "Measured here: 3.3 points less in six epochs of Mild on 20 classes of Tiny ImageNet "
        "(docs/proof.md)."
    )
    avoid_when: ClassVar[str] = (
        "The run is short: then it shows too few of the images that are still being learned. "
        "Losses say little of an image: images are mixed, or shown several times in a row."
    )
    conflicts: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("mixup", "cutmix", "mixup_or_cutmix"), _MIXTURE
    ) | {"sam": "half of its losses are those of moved weights"}
    skip: float = 0.5  # share left out, of the images whose loss is below the mean
    until: float = 0.875  # share of the run in whose epochs images are left out

    def __post_init__(self) -> None:
        self._scores = np.empty(0, np.float32)  # losses by image, as they choose the epoch's images
        self._latest = np.empty(0, np.float32)  # losses by image, after `_steps` of the epoch
        self._epoch, self._steps = 0, 0
        self._order = np.empty(0, np.int64)  # of the epoch; empty: no loader asked for one
        self._losses: list[Tensor] = []  # of this rank's examples, of the steps since `_steps`
        self._counts = np.empty(0, np.float32)  # by how much a loss counts, by place in the order
        self._weights: Tensor | None = None  # the same for this rank's examples, by step

    def problems(self) -> Iterator[Problem]:
        for key, most in (("skip", 0.9), ("until", 1)):
            if not 0 <= getattr(self, key) <= most:
                yield Problem(key, getattr(self, key), f"must be between 0 and {most}")

    def order(self, order: np.ndarray, now: Now) -> np.ndarray | None:
        if not len(self._scores):
            self._scores = np.full(len(order), _START, np.float32)
            self._latest = self._scores.copy()
        if len(self._scores) != len(order):
            raise TrainingError("the checkpoint cannot be used: it has losses of other images")
        if now.epoch > self._epoch:
            follows = len(self._order) and now.epoch == self._epoch + 1
            if follows and self._steps + len(self._losses) < now.horizon.steps_per_epoch:
                return None  # losses of the epoch before are still to come
            self._take_in()
            self._scores = self._latest.copy()
            self._epoch, self._steps = now.epoch, 0
        pruned = now.epoch + 1 <= decimal(self.until) * now.horizon.epochs  # as in their sampler
        skip = self.skip if pruned else 0.0
        self._order, self._counts = chosen(order, self._scores, skip, now.rng)
        self._weights = None
        return self._order

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        if not len(self._counts):
            return batch
        if self._weights is None:
            rank, world_size = _place()
            steps, size = now.horizon.steps_per_epoch, len(batch.labels)
            counts = self._counts[: steps * world_size * size].reshape(steps, world_size, size)
            self._weights = send(np.ascontiguousarray(counts[:, rank]), batch.images.device)
        return batch._replace(weights=self._weights[now.step % now.horizon.steps_per_epoch])

    def gradient(self, compute: Compute, params: list[Tensor], now: Now) -> Tensor:
        losses = compute()
        if len(self._order):
            if not self._losses:  # training may have begun at any step of the epoch
                self._steps = now.step % now.horizon.steps_per_epoch
            self._losses.append(losses)
        return losses

    def state_dict(self) -> dict[str, Tensor]:
        """Return the losses of all images; waits for the device, and for all ranks."""
        if not len(self._order):
            return {}
        self._take_in()
        return {
            "scores": torch.from_numpy(self._scores),
            "latest": torch.from_numpy(self._latest),
            "place": torch.tensor([self._epoch, self._steps]),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.__post_init__()
        if not state:
            return
        kept = [state.get(name, torch.empty(0)) for name in ("scores", "latest", "place")]
        scores, latest, place = kept
        if (
            [tensor.dtype for tensor in kept] != [torch.float32, torch.float32, torch.int64]
            or not scores.shape == latest.shape == (len(scores),)
            or place.shape != (2,)
            or place.min() < 0
        ):
            raise TrainingError("the checkpoint cannot be used: these are no losses of infobatch")
        self._scores, self._latest = scores.numpy().copy(), latest.numpy().copy()
        self._epoch, self._steps = place.tolist()

    def _take_in(self) -> None:
        """Note the losses of the steps since the last call, of all ranks."""
        if not self._losses:
            return
        mine = torch.stack(self._losses)
        found = [mine]
        if dist.is_initialized():
            found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(found, mine)
        losses = torch.cat(found, 1).cpu().numpy()  # [steps, examples of a step]
        first = self._steps * losses.shape[1]
        self._latest[self._order[first : first + losses.size]] = losses.ravel()
        self._steps += len(self._losses)
        self._losses.clear()


def chosen(
    order: np.ndarray, scores: np.ndarray, skip: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return an epoch's images, as many as in `order`, and by how much each one's loss counts.

    Each pass over the images leaves out others.
    """
    weights = np.ones(len(scores), np.float32)
    learned = np.flatnonzero(scores < scores.mean(dtype=np.float64))
    skipped = len(learned) - int((1 - skip) * len(learned))
    if not skip or skipped in (0, len(scores)):
        return order, weights
    passes, missing = [], len(order)
    while missing > 0:
        is_kept = np.ones(len(scores), bool)
        is_kept[rng.choice(learned, skipped, replace=False)] = False
        passes.append(order[is_kept[order]])
        missing -= len(passes[-1])
        order = rng.permutation(order)
    weights[learned] = 1 / (1 - skip)
    images = np.concatenate(passes)[: len(order)]
    return images, weights[images]


def _place() -> tuple[int, int]:
    """Return this rank's number, and how many ranks there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

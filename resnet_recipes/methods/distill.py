"""Learn from the outputs of a trained network."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.base.errors import Change, Problem, Value
from resnet_recipes.base.limits import Positive, ZeroToOne
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.base import TEACHER_BATCH_SIZE, Batch, Method, Now


@dataclass
class Distill(Method):
    """Learn from a teacher's outputs (Hinton et al., 2015, arXiv:1503.02531).

    The loss becomes `(1 - share) * loss + share * temperature^2 * KL(teacher || network)`, with
    both softmaxes at `temperature`. The teacher is frozen in evaluation mode. It sees the same
    images as the network, after crops and mixing (Beyer et al., 2022, arXiv:2106.05237). Both
    gradients of a SAM step use the same outputs. Beyer et al. use `share: 1` in very long runs.
    `labels` are teacher outputs stored by `resnet-recipes teach` (Shen and Xing, 2021,
    arXiv:2112.01528). They are mixed like targets.
    """

    name = "distill"
    cost = (
        "a forward pass of the teacher every step, and its weights on the device. Stored labels "
        f"are computed once for all runs with the same crops ({DOCS}/howto/distill.html)."
    )
    gain = (
        "82.8% top-1 for ResNet-50 on ImageNet, in very long runs (Beyer et al., 2022). Measured "
        "here: +6.8 (0.7 to 12.9) in 8 epochs of Mild on 20 classes of Tiny ImageNet, from stored "
        f"labels of a teacher with 68% top-1 ({DOCS}/lab/teacher.html). A teacher that was not "
        f"better gained nothing ({DOCS}/lab/unequal_classes.html)."
    )
    network_setting = "teacher"
    soft_labels_setting = "labels"
    changes = "labels"
    avoid_when = (
        "The teacher is not better than the network will be, or was trained on other classes."
    )
    teacher: str = ""  # a run, a weights file or checkpoint, timm:NAME or hf:USER/NAME
    # temperature of both softmaxes; a higher value gives small probabilities more weight
    temperature: Positive = 1.0
    share: ZeroToOne = 0.5  # fraction of the loss that comes from the teacher
    labels: str = ""  # a file from resnet-recipes teach, instead of the teacher

    def __post_init__(self) -> None:
        self._compute_logits: Callable[[Tensor], Tensor] | None = None

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if re.match("torchvision(:|$)|timm:$", self.teacher):
            rule = "must be a run, a weights file, timm:NAME or hf:USER/NAME"
            yield Problem("teacher", self.teacher, rule)
        if self.labels and not self.labels.endswith(".safetensors"):
            rule = "must be a .safetensors file of resnet-recipes teach"
            yield Problem("labels", self.labels, rule, Value("labels.safetensors"))
        if self.teacher and self.labels:
            clause = "cannot be used with methods.distill.teacher"
            yield Problem("labels", self.labels, clause, Change("methods.distill.teacher="))

    def provides(self, hook: str) -> bool:
        return super().provides(hook) and not (hook == "transform_batch" and self.labels)

    def take_network(self, compute_logits: Callable[[Tensor], Tensor]) -> None:
        self._compute_logits = compute_logits

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        if self._compute_logits is None:
            return batch
        parts = [self._compute_logits(images) for images in batch.images.split(TEACHER_BATCH_SIZE)]
        return batch._replace(soft_labels=torch.softmax(self._soften(torch.cat(parts)), 1))

    def change_loss(self, losses: Tensor, logits: Tensor, batch: Batch) -> Tensor:
        if batch.soft_labels is None:
            return losses
        log_probabilities = F.log_softmax(self._soften(logits), 1, dtype=torch.float32)
        constant = torch.xlogy(batch.soft_labels, batch.soft_labels)
        divergence = torch.addcmul(constant, batch.soft_labels, log_probabilities, value=-1).sum(1)
        if self.temperature != 1:
            divergence = self.temperature**2 * divergence
        return losses.lerp(divergence, self.share)

    def _soften(self, logits: Tensor) -> Tensor:
        return logits if self.temperature == 1 else logits.float() / self.temperature

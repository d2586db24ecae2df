"""Evaluate on any number of ranks, counting every example once."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.data.stream import Stream
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.distributed import broadcast_statistics, sum_over_ranks
from resnet_recipes.training.memory import explain_lack_of_memory
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.precision import NOT_FINITE_FIX, Precision


class CutShortError(Exception):
    """A stop was requested during an evaluation, so the evaluation has no result."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: EvalLoader,
    precision: Precision,
    num_classes: int,
    flip: bool = False,
    on_batch: Callable[[Outcomes], object] = lambda outcomes: None,
) -> Metrics:
    """Return accuracies and mean softmax cross-entropy of `model`, the same on every rank.

    With `flip` the logits of each image and its horizontal flip are averaged. `on_batch` receives
    the outcomes of each batch, on the device. If it returns True on a rank, that rank stops, and
    all ranks raise CutShortError at the end. Copies rank 0's buffers to every rank, and leaves the
    model in training mode. Raises TrainingError if a logit or the loss is not finite, if a batch
    does not fit in memory, or if the loader has another number of examples.
    """
    device = precision.device
    broadcast_statistics(model)
    model.eval()
    # numbers for each class: top-1 hits, top-5 hits, examples, examples with a non-finite logit
    counts = torch.zeros(num_classes, 4, dtype=torch.int64, device=device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    is_cut = False
    for raw in Stream(data.batches(), device):
        size = len(raw.labels)
        images = f"a batch of {size} images of {raw.pixels.shape[-1]} px to evaluate"
        with explain_lack_of_memory(images, f"batch.eval_size={max(1, size // 2)}"):
            logits = compute_logits(model, data.normalize(raw), precision, flip)
        image_counts, outcomes = _compare_with_labels(logits, raw.labels)
        counts.index_add_(0, raw.labels, image_counts)
        total += outcomes.losses.double().sum()
        if is_cut := bool(on_batch(outcomes)):
            break
    model.train()
    if sum_over_ranks(torch.tensor(int(is_cut), device=device)):
        raise CutShortError
    counts = sum_over_ranks(counts)
    top1_hits, top5_hits, examples, broken = counts.sum(0).tolist()
    if examples != data.examples:
        raise TrainingError(
            f"evaluation saw {examples:,} of {data.examples:,} images; no accuracy is reported"
        )
    if broken:
        raise TrainingError(
            f"the network's outputs for {broken:,} of {examples:,} images are not finite numbers; "
            "no accuracy is reported",
            NOT_FINITE_FIX,
        )
    loss = float(sum_over_ranks(total)) / examples
    if not math.isfinite(loss):
        raise TrainingError("the validation loss is not a finite number", NOT_FINITE_FIX)
    class_hits, _, class_images, _ = counts[counts[:, 2] > 0].double().T
    balanced = float(100 * (class_hits / class_images).mean())
    top1 = 100 * top1_hits / examples
    top5 = 100 * top5_hits / examples
    return Metrics(top1, top5, loss, examples, balanced)


def _compare_with_labels(logits: Tensor, labels: Tensor) -> tuple[Tensor, Outcomes]:
    """Return the counts of each image, int64 [N, 4] in the order of `evaluate`, and the outcomes.

    Reads the logits [N, K] three times; for 100,000 classes, this can take longer than the network.
    """
    highest, top5 = logits.topk(min(5, logits.shape[1]))
    hits = top5 == labels.unsqueeze(1)
    # both are NaN if any logit is NaN
    is_broken = ~(highest[:, 0].isfinite() & logits.amin(1).isfinite())
    image_counts = [hits[:, 0], hits.any(1), torch.ones_like(is_broken), is_broken]
    pairs = torch.stack([labels, top5[:, 0]], 1)
    of_label, of_best = logits.log_softmax(1).gather(1, pairs).unbind(1)
    # labels are copied, since the loader reuses their memory
    outcomes = Outcomes(labels.clone(), top5[:, 0], of_best.exp(), -of_label)
    return torch.stack(image_counts, 1).long(), outcomes


@torch.no_grad()
def compute_logits(
    model: nn.Module, images: Tensor, precision: Precision, flip: bool = False
) -> Tensor:
    """Return the logits, float32 [N, classes], of normalized images [N, 3, H, W].

    With `flip`, return the mean over each image and its horizontal flip.
    """
    with precision.autocast():
        logits = model(images).float()
        return (logits + model(images.flip(3)).float()) / 2 if flip else logits

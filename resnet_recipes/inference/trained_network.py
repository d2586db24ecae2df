"""A trained network with settings for evaluation and prediction."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import nn

from resnet_recipes import cuda, data, ops
from resnet_recipes.base.errors import Command, Hint, Kind, NotReadyError, TrainingError
from resnet_recipes.base.model_config import NETWORKS, ModelConfig, find_implied_settings
from resnet_recipes.base.text import Progress, do_nothing
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.images.decode import Pixels
from resnet_recipes.data.loading import EvalLoader
from resnet_recipes.data.root import explain_unreadable, find_root_problem
from resnet_recipes.data.stream import Stream
from resnet_recipes.doctor.unused_gpu import make_missing_gpu_problem
from resnet_recipes.inference.images import UnlabeledImages, open_labeled
from resnet_recipes.network.about import NetworkDescription, select_image_settings
from resnet_recipes.network.fuse import fuse
from resnet_recipes.network.load import Network
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.sections import EvaluationConfig
from resnet_recipes.run_folder import BEST_WEIGHTS, CHECKPOINTS, CONFIG, DATA, RAW_WEIGHTS, WEIGHTS
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.distributed import Rank, read_rank
from resnet_recipes.training.evaluate import compute_logits, evaluate
from resnet_recipes.training.outcomes import Confusion, Outcomes
from resnet_recipes.training.precision import Precision, resolve_dtype

_CPU_RANK = Rank(0, 1, torch.device("cpu"))  # the only process

#: Settings that select images. If all are as in the run, the run's list of images is used.
_IMAGE_SELECTORS = ("root", "val_share", "fold", "val_seed", "nested_classes")


class EvaluationResult(NamedTuple):
    """Metrics of an evaluation over all ranks, and outcomes of this rank's images."""

    metrics: Metrics
    seconds: float
    device: str
    outcomes: Outcomes

    @property
    def confusion(self) -> Confusion:
        """The confusion matrix of the images."""
        return Confusion(self.outcomes)


@dataclass
class TrainedNetwork:
    """A network, on the CPU at first, and a recipe with its evaluation settings."""

    path: Path | None  # run folder or file; None for a network built in Python
    network: Network
    recipe: Recipe
    rank: Rank = _CPU_RANK
    precision: Precision = field(
        default_factory=lambda: Precision(_CPU_RANK.device, torch.float32, nn.Identity())
    )

    def to_device(self) -> Self:
        """Move the network to this rank's device, fuse its operations if allowed, and return it.

        Raises NotReadyError if the device is missing.
        """
        if self.recipe.launch.device == "cuda" and not cuda.is_usable():
            fix = "launch.device=cpu"
            raise NotReadyError([make_missing_gpu_problem("launch.device", "cuda", fix)])
        rank = read_rank(self.recipe.launch.device)
        precision = self.recipe.precision
        dtype = resolve_dtype(precision.dtype, rank.device)
        model = self.network.to(rank.device)
        if precision.kernels == "auto":
            fuse(self.model, ops.choose(rank.device, dtype))
        return replace(self, rank=rank, precision=Precision(rank.device, dtype, model))

    @property
    def model(self) -> nn.Module:
        """The bare network."""
        return self.network.model

    @property
    def about(self) -> NetworkDescription:
        """The description of the network, with the evaluation settings of the recipe.

        If these differ from the settings used to measure its accuracy, the accuracy is omitted.
        """
        original = self.network.about
        images = select_image_settings(self.recipe.data)
        used = replace(original, flip=self.recipe.evaluation.flip, **images)
        if used == original:
            return original
        return replace(used, top1_percent=None, top5_percent=None, loss=None, eval_examples=0)

    @property
    def described_network(self) -> Network:
        """The network, with the evaluation settings of the recipe in its description."""
        return Network(self.model, self.about)

    @property
    def device(self) -> torch.device:
        """The device of the network and its inputs."""
        return self.precision.device

    def with_size(self, size: int) -> "TrainedNetwork":
        """Return the network with another test size; the ratio of resize to crop stays the same."""
        data = replace(
            self.recipe.data, eval_size=size, eval_resize=self.recipe.data.resize_for(size)
        )
        return replace(self, recipe=replace(self.recipe, data=data))

    def open_images(self, fetches: bool = True) -> EvalLoader:
        """Open this rank's part of the images at data.root, or of the evaluation images of a run.

        Raises NotReadyError if they cannot be read, or are remote, without a local copy, and
        `fetches` is False.
        """
        config, size = self.recipe.data, self.recipe.batch.eval_size
        batching = Batching(self.rank.rank, self.rank.world_size, size, size, 0)
        original = make_recipe(self.path, self.network).data
        about = self.network.about
        is_own = all(getattr(config, key) == getattr(original, key) for key in _IMAGE_SELECTORS)
        run = find_run(self.path)
        facts = run and run / DATA
        has_facts = bool(facts and os.path.lexists(facts) and is_own)
        if not (has_facts or config.root):
            clause = "the folder that contains the images"
            raise NotReadyError.of("data.root", None, clause, Hint("data=PATH"), Kind.MISSING)
        local = _find_local_copy(config, fetches)
        try:
            if facts and has_facts:
                fix = Command.of("rm", str(facts))
                stored = data.DataFacts.read(facts, local.root, fix)
                return data.open_eval(config, stored, batching)
            return open_labeled(local, about.classes, about.num_classes, batching)
        except OSError as error:
            if error.filename is None:  # an error of the process, such as too many threads
                raise
            problem = find_root_problem(local.root) or explain_unreadable(error)
            moved = "" if problem.corrections else Hint("if the images were moved: data=PATH")
            raise NotReadyError([problem._replace(fix=(*problem.advice, moved))]) from None

    def evaluate(self, progress: Progress = do_nothing) -> EvaluationResult:
        """Evaluate as in training, with all ranks.

        Raises NotReadyError if the images cannot be read, TrainingError if the evaluation fails.
        `progress` is called at every batch with the approximate number of images that all ranks
        have evaluated, and the total number.
        """
        batches: list[Outcomes] = []
        done = 0

        def on_batch(outcomes: Outcomes) -> None:
            nonlocal done
            done += len(outcomes.labels) * self.rank.world_size
            progress(min(done, images.examples), images.examples)
            batches.append(outcomes)

        with closing(self.open_images()) as images:
            start = time.perf_counter()
            about, flip = self.network.about, self.recipe.evaluation.flip
            metrics = evaluate(
                self.model, images, self.precision, about.num_classes, flip, on_batch
            )
            seconds = time.perf_counter() - start
            return EvaluationResult(
                metrics, seconds, self.rank.devices, Outcomes.concatenate(batches)
            )


def _find_local_copy(config: DataConfig, fetches: bool) -> DataConfig:
    if not fetches:  # a run folder from anyone may name any URL: do not even request it
        data.require_trusted_url(config, [])
    local = data.fetch(config, stopped=lambda: not fetches)
    if local is None:
        raise NotReadyError.of("data.root", config.root, "has no complete copy on this machine")
    return local


def find_run(path: Path | None) -> Path | None:
    """Return the run folder that `path` is, or whose weights or checkpoint it is; else None."""
    if path is None or path.is_dir():
        return path
    folder = path.absolute().parent
    is_checkpoint = folder.name == CHECKPOINTS
    folder = folder.parent if is_checkpoint else folder
    is_of_run = is_checkpoint or path.name in (WEIGHTS, BEST_WEIGHTS, RAW_WEIGHTS)
    return folder if is_of_run and path.is_file() and (folder / CONFIG).is_file() else None


def make_recipe(path: Path | None, network: Network) -> Recipe:
    """Return the recipe of a run or a checkpoint's run, or defaults with image settings.

    The recipe uses all visible GPUs.
    """
    if run := find_run(path):
        recipe = frozen_recipe.read(run / CONFIG)
        return replace(recipe, launch=replace(recipe.launch, gpus="auto", max_restarts=0))
    about = network.about
    config = DataConfig(**select_image_settings(about))
    name = about.architecture
    args = {"args": dict(about.arguments)} if name not in NETWORKS else {}
    model = ModelConfig(name, **find_implied_settings(name) | args)
    return Recipe(
        name="file", model=model, data=config, evaluation=EvaluationConfig(flip=about.flip)
    )


#: Default number of classes named per image.
DEFAULT_TOP = 5


class Prediction(NamedTuple):
    """Classes predicted for an image."""

    file: str
    classes: tuple[tuple[str, float], ...]  # names and probabilities, best first
    error: str = ""  # why the image could not be read; `classes` is then empty


def predict_images(
    trained: TrainedNetwork, inputs: Sequence[str | Pixels], top: int = DEFAULT_TOP
) -> Iterator[Prediction]:
    """Yield the `top` most probable classes of each image, in order.

    An image is an absolute path, or in memory. An unreadable image gets an error instead of
    classes. Raises TrainingError if the network's outputs for an image are not finite.
    """
    recipe, name = trained.recipe, trained.network.about.class_name
    with closing(UnlabeledImages(inputs, recipe.data, recipe.batch.eval_size)) as images:
        for raw in Stream(images.batches(), trained.device):
            logits = compute_logits(
                trained.model, images.normalize(raw), trained.precision, recipe.evaluation.flip
            )
            probabilities, predicted_classes = logits.softmax(1).topk(min(top, logits.shape[1]))
            black = raw.pixels.flatten(1).amax(1) == 0
            broken = ~logits.isfinite().all(1)
            parts = (raw.labels, black, broken, predicted_classes, probabilities)
            for index, *row in zip(*(part.tolist() for part in parts), strict=True):
                is_black, is_broken, predicted, probabilities = row
                if is_black and (error := images.find_error(index)):
                    yield Prediction(images.names[index], (), error)
                    continue
                if is_broken:
                    raise TrainingError(
                        f"{images.names[index]}: the network's outputs for this image are not "
                        "finite numbers",
                        Hint("its weights are damaged, or did not converge"),
                    )
                pairs = zip(map(name, predicted), probabilities, strict=True)
                yield Prediction(images.names[index], tuple(pairs))

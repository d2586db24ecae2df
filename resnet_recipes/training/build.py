"""Build a run from a plan: model, data and optimizer, in the required order."""

from collections import Counter
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from resnet_recipes import data, ops
from resnet_recipes.backbones import is_resnet
from resnet_recipes.data.base import DataConfig, Normalization, normalize, relate_normalizations
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_network, cast_by_stage, cast_in_place
from resnet_recipes.network.fuse import fold_batchnorm, fuse
from resnet_recipes.network.load import Network
from resnet_recipes.network.pretrained import freeze
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.teachers import open_teachers
from resnet_recipes.training.all_reduce import AllReduce
from resnet_recipes.training.best_weights import BestWeights
from resnet_recipes.training.clock import Clock
from resnet_recipes.training.distributed import Rank, find_first_ranks, join_group
from resnet_recipes.training.gradient import GradientComputer
from resnet_recipes.training.graphs import GradientGraphs, ReplayedNetwork
from resnet_recipes.training.precision import Precision, resolve_dtype
from resnet_recipes.training.run import Notes, Run

#: Minimum training pixels per rank at an image size for a cuDNN search to pay off: 300,000 images
#: of 224 px, which take 45 s for ResNet-50 on an H200. With a search, the first step takes 2 to 8 s
#: there. A speedup of a few percent is assumed.
MIN_SEARCHED_PIXELS = 300_000 * 224**2


def choose_searched_sizes(plan: Plan) -> list[int]:
    """Return the image sizes, in pixels, that start a cuDNN search for the fastest algorithms.

    Torch keeps the algorithm of the first convolution of a shape, whether or not it was searched
    for. The plan alone therefore decides before the first step, so that all ranks and resumed runs
    agree.
    """
    pixels_by_size: Counter[int] = Counter()
    for epoch, image_size in enumerate(plan.image_sizes):
        steps = min(plan.steps_per_epoch, plan.total_steps - epoch * plan.steps_per_epoch)
        pixels_by_size[image_size] += steps * plan.rank_size * image_size**2
    return [
        image_size for image_size, count in pixels_by_size.items() if count >= MIN_SEARCHED_PIXELS
    ]


def build(plan: Plan, rank: Rank, searched_sizes: Collection[int] | None = None) -> Run:
    """Return a run ready for step 0; all ranks get the trainable weights of rank 0.

    `searched_sizes` overrides the image sizes that start a cuDNN search. Raises NotReadyError if
    the images differ from the plan, TrainingError if a gradient does not fit on the GPU.
    """
    recipe = plan.recipe
    dtype = resolve_dtype(recipe.precision.dtype, rank.device)
    is_fused = recipe.precision.kernels == "auto" and recipe.precision.channels_last
    # This comes before this process uses the GPU: another process tests the kernels, and some GPUs
    # accept only one process at a time.
    operations = ops.choose(rank.device, dtype) if is_fused else ops.Operations()
    join_group(rank)
    operations = agree_on_operations(operations, rank)

    # fused operations replace layers of the network, and compilation traces the result
    methods = plan.new_stack()
    model = build_network(recipe, methods, plan.num_classes, rank.device)
    freeze(model, recipe.model)
    precision = Precision(rank.device, dtype, model)
    fuse(model, operations)
    if (
        is_fused
        and rank.device.type == "cuda"
        and precision.dtype != torch.float32
        and not recipe.precision.compile
        and is_resnet(model)  # other networks may use their weights before the cast
    ):
        cast_by_stage(model, precision.dtype)
    if recipe.precision.compile:
        model.compile(dynamic=True if len(set(plan.image_sizes)) > 1 else None)  # one graph

    # the all-reduce and the optimizer refer to the parameters, so the network is complete here
    train_data = open_rank_images(plan, rank, methods)
    all_reduce = AllReduce(model, recipe.precision.compress_gradients)
    optimizer = recipe.optimizer.build(model)
    notes = Notes(operations.notes)
    is_replayed = recipe.precision.kernels == "auto" and rank.device.type == "cuda"
    graphs = GradientGraphs(model, all_reduce, notes) if is_replayed else None
    give_teachers(plan, methods, precision, graphs)
    run = Run(
        plan=plan,
        rank=rank,
        model=model,
        all_reduce=all_reduce,
        graphs=graphs,
        optimizer=optimizer,
        methods=methods,
        operations=operations,
        precision=precision,
        clock=Clock(rank.device),
        searched_sizes=choose_searched_sizes(plan) if searched_sizes is None else searched_sizes,
        train_data=train_data,
        eval_data=data.open_eval(recipe.data, plan.facts, plan.batching(rank.rank)),
        best=BestWeights(recipe.checkpoint.best),
        notes=notes,
    )
    if rank.device.type == "cuda":
        GradientComputer(run).check_memory()
    return run


def give_teachers(
    plan: Plan, methods: Stack, precision: Precision, graphs: GradientGraphs | None
) -> None:
    """Give each method that needs a trained network its network.

    Raises NotReadyError if a network cannot be read, or has changed since the plan was made.
    """
    for method, network in open_teachers(methods, plan.teachers):
        teacher = build_teacher(network, precision, plan.recipe.data)
        method.take_network(teacher if graphs is None else ReplayedNetwork(teacher, graphs))


def build_teacher(
    network: Network, precision: Precision, config: DataConfig
) -> Callable[[Tensor], Tensor]:
    """Return a network in evaluation mode as a function from images to float32 logits.

    It computes in the run's precision and takes images normalized as in the run. A ResNet has its
    BatchNorms folded and its weights cast once, in advance.
    """
    model, about = network.model, network.about
    target = Normalization(about.mean, about.std)
    current = Normalization(config.mean, config.std)
    normalization = relate_normalizations(target, current) if target != current else None
    if is_resnet(model):
        model = fold_batchnorm(model)
        if precision.dtype != torch.float32:
            cast_in_place(model, precision.dtype)
    model.to(precision.device, memory_format=torch.channels_last)

    @torch.no_grad()
    def compute_logits(images: Tensor) -> Tensor:
        if normalization:
            images = normalize(images, *normalization)
        with precision.autocast():
            return model(images).float()

    return compute_logits


def agree_on_operations(operations: ops.Operations, rank: Rank) -> ops.Operations:
    """Return the operations that all ranks support, since one slow rank slows down all ranks."""
    fused = operations.list_fused()
    flags = torch.tensor([name not in fused for name in ops.MODULES], device=rank.device)
    for name, lacking in zip(ops.MODULES, find_first_ranks(flags), strict=True):
        if name in fused and lacking >= 0:
            note = (
                f"the {name} kernel cannot be used on the GPU of rank {lacking}; all ranks use "
                f"plain torch instead: see logs/rank{lacking}.log"
            )
            operations = operations.without(name, note)
    return operations


def open_rank_images(plan: Plan, rank: Rank, methods: Stack) -> data.TrainLoader:
    """Open this rank's training images. Raises NotReadyError if they differ from the plan."""
    batching = plan.batching(rank.rank)
    augment = methods.augment_image()
    return data.open_train(plan.recipe.data, plan.facts, batching, augment)

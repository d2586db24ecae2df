"""Check complete training steps on the device.

They are compared with CPU steps, replayed, run with NCCL, and must not wait.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch
from faults import make_error_row
from operation_checks import Check
from runs import NO_METHODS, make_facts, make_recipe, make_run, make_training_loop
from torch import Tensor, nn

from resnet_recipes.methods import ORDER
from resnet_recipes.methods.optimizers import OPTIMIZERS, DecoupledSGDW, OptimizerSettings
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.training import graphs, micro_batch
from resnet_recipes.training.all_reduce import AllReduce
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.precision import Precision
from resnet_recipes.training.run import Run

#: An update is wrong if its error exceeds this, relative to the root mean square of its tensor's
#: updates. Rounding flips a few ReLUs and maxima: with weights that are 5e-6 apart, up to 5e-4 of
#: the updates are wrong; if one in a hundred is omitted, 5e-3 or more.
UPDATE_TOLERANCE, WRONG_FRACTION = 0.2, 1e-3

#: Enough images that BatchNorm has enough values at the smallest maps; a learning rate that keeps
#: weights 1e-6 apart close; and no decay, which would dominate each update at that learning rate.
SIZE, BATCH = 48, 8
STABLE_SETTINGS = {
    "optimizer": {"lr": 2e-4, "weight_decay": 0.0},
    "schedule": {"warmup": "0ba"},
    "precision": {"dtype": "fp32"},
}

#: Methods that act only after three steps, or that amplify rounding errors.
METHOD_SETTINGS = {"sam": {"interval": 2, "rho": 0.05}, "ema": {"update_interval": "1ba"}}

#: SAM at every second step, and a nonzero learning rate after the first, so that updates act.
SAM_SETTINGS = {"methods": {"sam": METHOD_SETTINGS["sam"]}, "schedule": {"warmup": "1ba"}}


def iterate_decisive_checks(device: torch.device) -> Iterator[Check]:
    """Yield checks of a step, and of GPU features: replays, no waiting, NCCL."""
    yield "3 steps, no methods", partial(_compare_with_cpu, NO_METHODS, device)
    if device.type == "cuda":
        for name, dtype in (("mild", "bf16"), ("hot", "bf16"), ("hot", "fp16")):
            case = f"12 steps of {name} as CUDA graphs, {dtype}"
            yield case, partial(_check_replay, name, dtype, device)
        yield "20 steps of Medium without waiting", partial(_check_no_sync, device)
        yield "12 steps of Medium over NCCL", partial(_check_all_reduce, device)


def iterate_dtype_checks(device: torch.device) -> Iterator[Check]:
    """Yield steps of every optimizer in both half precisions, and an overflow."""
    yield "an overflow in fp16 changes nothing", partial(_check_overflow, device)
    if device.type == "cuda":
        for dtype in ("bf16", "fp16"):
            for settings in OPTIMIZERS:
                case = f"8 steps of {settings.name}, {dtype}"
                yield case, partial(_check_weights_move, dtype, settings, device)


def iterate_method_checks(device: torch.device) -> Iterator[Check]:
    """Yield three steps with each method alone."""
    for cls in ORDER:
        # GPUs sample different numbers; synthetic images are not augmented and have no teacher
        in_workers = cls().provides("augment_image")
        if not (in_workers or cls().is_random_in_forward or cls.network_setting):
            alone = NO_METHODS | {cls.name: METHOD_SETTINGS.get(cls.name, {})}
            yield f"3 steps, {cls.name}", partial(_compare_with_cpu, alone, device)
    if device.type == "cuda":
        yield "3 steps of Mild in the largest micro-batch", partial(_check_largest_batch, device)


def _compare_with_cpu(methods: dict, device: torch.device) -> dict:
    """Compare the changes of three steps with those on the CPU, with equal random numbers."""
    expected, actual = (compute_changes(methods, each) for each in (torch.device("cpu"), device))
    wrong = sum(map(_count_wrong, expected, actual)) / sum(update.numel() for update in expected)
    return make_error_row(wrong, WRONG_FRACTION, "of the updates are wrong")


def _count_wrong(expected: Tensor, actual: Tensor) -> int:
    """Return the number of updates that are too far from the expected ones, or NaN."""
    scale = expected.square().mean().sqrt()
    return int((~((actual - expected).abs() <= UPDATE_TOLERANCE * scale)).sum())


def compute_changes(methods: dict, device: torch.device) -> list[Tensor]:
    """Return the changes of a float32 ResNet-18's evaluation tensors in three steps."""
    run = make_run(
        make_recipe("mild", SIZE, BATCH, True, methods=dict(methods), **STABLE_SETTINGS), device
    )
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    make_training_loop(run)(3)
    with run.methods.eval_weights(run.model):
        after = run.model.state_dict()
        return [(after[name] - value).double().cpu() for name, value in before.items()]


def _check_largest_batch(device: torch.device) -> dict:
    """Find the largest batch, up to 4,096 images of 224 px, that fits, and train with it."""
    recipe = make_recipe("mild", 224, 4096, False)
    torch.cuda.set_per_process_memory_fraction(micro_batch.USABLE_MEMORY_FRACTION, device)
    plan = make_plan(recipe, make_facts(recipe), 1)
    size = micro_batch.find_micro_batch(plan, Rank(0, 1, device))
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    run = make_run(replace(recipe, batch=replace(recipe.batch, bn_size=size)), device)
    make_training_loop(run)(3)
    torch.cuda.synchronize(device)
    return {"value": size, "unit": "images"}


def _check_overflow(device: torch.device) -> dict:
    """Let float16 overflow; count the floating-point tensors of the model that change."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(device)
    precision = Precision(device, torch.float16, model)
    optimizer = DecoupledSGDW(lr=0.1).build(model)
    floats = {name: v for name, v in model.state_dict().items() if v.is_floating_point()}
    copies = {name: value.clone() for name, value in floats.items()}
    precision.copy_statistics()
    with precision.autocast():
        squares = model(torch.full((2, 3, 8, 8), 6e4, device=device)).float().square()
    precision.backward(squares.sum() * float("inf"))
    precision.step_optimizer(optimizer, None)
    changed = sum(not torch.equal(floats[name], value) for name, value in copies.items())
    return make_error_row(changed, 0, "tensors changed")


def _check_weights_move(
    dtype: str, settings: type[OptimizerSettings], device: torch.device
) -> dict:
    """Take steps with an optimizer; count weights that did not change or are not finite."""
    recipe = make_recipe(
        "mild", 64, 16, True, precision={"dtype": dtype}, schedule={"warmup": "1ba"}
    )
    run = make_run(replace(recipe, optimizer=settings()), device)
    before = [weight.detach().clone() for weight in run.model.parameters()]
    make_training_loop(run)(8)
    wrong = sum(
        torch.equal(weight, old) or not weight.isfinite().all()
        for weight, old in zip(run.model.parameters(), before, strict=True)
    )
    return make_error_row(wrong, 0, "weights stood still, or are not finite")


def _check_replay(name: str, dtype: str, device: torch.device) -> dict:
    """Check that twelve steps with replayed gradients are bit-identical to twelve without."""
    recipe = make_recipe(name, 64, 16, True, precision={"dtype": dtype}, **SAM_SETTINGS)
    messages: list[str] = []
    with patch.object(graphs, "WAITS_BEFORE_REPLAY", 0):
        replayed = make_run(recipe, device)
        plain = make_run(recipe, device)
        replayed.notes.listen(messages.append)
        messages.clear()  # notes from building the run
        plain.graphs = None
        row = _compare_bits(replayed, plain)
    faults = [{"fault": text} for text in messages if "cannot" in text]
    return row | (faults[0] if faults else {})


def _check_all_reduce(device: torch.device) -> dict:
    """Check that steps in an NCCL group of one rank are bit-identical to steps without one."""
    recipe = make_recipe("medium", 64, 16, True, precision={"dtype": "fp32"}, **SAM_SETTINGS)
    alone = make_run(recipe, device)
    grouped = make_run(recipe, device)
    alone.graphs = grouped.graphs = None  # a graph would keep the all-reduce of a single process
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(
        "nccl", store=store, rank=0, world_size=1, device_id=device
    )
    try:
        grouped.all_reduce = AllReduce(grouped.model)
        return _compare_bits(alone, grouped)
    finally:
        torch.distributed.destroy_process_group()


def _compare_bits(one: Run, other: Run) -> dict:
    """Take twelve steps with each of two runs; count the parameters that differ in any bit."""
    torch.backends.cudnn.deterministic = True
    try:
        for run in (one, other):
            make_training_loop(run)(12)
    finally:
        torch.backends.cudnn.deterministic = False
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    equal = [torch.equal(*pair) for pair in pairs]
    return make_error_row(equal.count(False), 0, f"of {len(equal)} parameters differ")


def _check_no_sync(device: torch.device) -> dict:
    """Take 20 steps of Medium while torch raises an error for operations that wait for the GPU."""
    steps = make_training_loop(
        make_run(make_recipe("medium", 64, 16, True, **SAM_SETTINGS), device)
    )
    steps(12)
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps(20)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"value": True, "unit": "right"}

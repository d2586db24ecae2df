"""Check that the device computes what the CPU computes: operations, methods, pixels, and steps that do not wait."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from session import Counting, recipe_of, run_of
from torch import nn

from resnet_recipes import ops
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.pixel_ops import PIXEL_OPS
from resnet_recipes.ops import batch_norm, stem
from resnet_recipes.optim import OPTIMIZERS, DecoupledSGDW, OptimizerSettings
from resnet_recipes.training import graphs
from resnet_recipes.training.exchange import Exchange
from resnet_recipes.training.loop import train
from resnet_recipes.training.precision import Precision

CPU = torch.device("cpu")

#: How far a loss may be from the CPU's after three steps in float32, relative to it.
ALLOWED = 1e-4


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield a row for each comparison; it has a fault after an error, or if rounding does not explain a difference."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for check, *arguments in _checks(device, quick):
        try:
            yield check(*arguments)
        except Exception as error:  # the remaining checks are still worth running
            case = " ".join(
                [check.__name__.strip("_"), *(each for each in arguments if isinstance(each, str))]
            )
            yield {
                "case": case,
                "fault": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
            }


def _checks(device: torch.device, quick: bool) -> Iterator[tuple]:
    """Yield the checks with their arguments; each returns a row."""
    on_gpu = device.type == "cuda"
    yield from (
        (_operations, dtype, device)
        for dtype in (torch.bfloat16, torch.float16, torch.float32)
        if on_gpu
    )
    yield from ((_not_a_number, kind, device) for kind in ("batch_norm", "stem"))
    yield from ((_steady, device) for _ in range(on_gpu))
    yield from ((_pixels, name, device) for name in PIXEL_OPS)
    yield from ((_method, changes, device, quick) for changes in _methods())
    yield _overflow, device
    yield _checkpoint, device, quick
    if on_gpu:
        yield from (
            (_copies, dtype, settings, device)
            for dtype in ("bf16", "fp16")
            for settings in OPTIMIZERS
        )
        yield from (
            (_replayed, *case, device)
            for case in (("mild", "bf16"), ("hot", "bf16"), ("hot", "fp16"))
        )
        yield _waits, device
        yield _nccl, device


def _operations(dtype: torch.dtype, device: torch.device) -> dict:
    """Compare every fused operation with torch's own, as is done before a run; the first time, they are compiled."""
    began = time.perf_counter()
    notes = ops.choose(device, dtype).notes
    taken = time.perf_counter() - began
    case = f"fused operations, {str(dtype).removeprefix('torch.')}"
    return {
        "case": case,
        "value": not notes,
        "unit": "right",
        "fault": "; ".join(notes),
        "note": f"{taken:.1f} s",
    }


def _not_a_number(kind: str, device: torch.device) -> dict:
    """Put NaN into one channel; count the values that are NaN in only one of torch's and the fused results."""
    operation, x = (
        {"batch_norm": batch_norm, "stem": stem}[kind],
        torch.ones(2, 64, 8, 8, device=device),
    )
    x[0, 5] = float("nan")
    found = []
    for form in (operation.plain, operation.fused):
        norm = nn.BatchNorm2d(64).to(device)
        rest = norm.running_mean, norm.running_var, norm.num_batches_tracked, 0.1, 1e-5
        rest = (None, None, *rest, True) if kind == "batch_norm" else rest
        found.append(
            form(
                x.contiguous(memory_format=torch.channels_last), norm.weight, norm.bias, *rest
            ).isnan()
        )
    return _row(f"NaN through {kind}", float((found[0] != found[1]).sum()), 0, "values differ")


def _steady(device: torch.device) -> dict:
    """Repeat BatchNorm while another stream keeps multiprocessors busy: the bits must never change."""
    norm, side, wrong = (
        nn.BatchNorm2d(64).to(device),
        torch.cuda.Stream(device),
        torch.zeros((), device=device),
    )
    noise = torch.randn(2048, 2048, device=device)
    x = (
        torch.randn(64, 64, 56, 56, device=device)
        .bfloat16()
        .contiguous(memory_format=torch.channels_last)
    )
    leaf, first = x.requires_grad_(), None
    for _ in range(300):
        with torch.cuda.stream(side):
            torch.mm(noise, noise)
        running = torch.zeros(2, 64, device=device)
        y = batch_norm.fused(
            leaf,
            norm.weight,
            norm.bias,
            None,
            None,
            *running,
            norm.num_batches_tracked,
            0.1,
            1e-5,
            True,
        )
        found = [
            running,
            y.detach(),
            *torch.autograd.grad(y, [leaf, norm.weight, norm.bias], x.detach()),
        ]
        first = first or found
        wrong += sum((a != b).any() for a, b in zip(found, first, strict=True))
    return _row("300 BatchNorms beside another stream", float(wrong), 0, "of their results differ")


def _methods() -> Iterator[dict[str, dict | None]]:
    """Yield the methods of each run: none, then each alone."""
    none = {cls.name: None for cls in ORDER}
    yield none
    for cls in ORDER:
        in_workers = cls().provides("augment_sample") and not cls().provides("augment_pixels")
        if not in_workers and not cls().draws_in_forward:  # a GPU draws different numbers
            yield none | {cls.name: {}}


def _method(methods: dict, device: torch.device, quick: bool) -> dict:
    """Compare the losses of three steps of a ResNet-18 in float32, with the same random draws."""
    case = f"3 steps, {', '.join(name for name, value in methods.items() if value is not None) or 'no methods'}"
    side, batch = (32, 4) if quick else (64, 16)
    recipe = recipe_of("mild", side, batch, True, methods=methods, precision={"dtype": "fp32"})
    found = [_losses(recipe, place) for place in (CPU, device)]
    return _row(case, _apart(*found), ALLOWED, "relative error of the loss")


def _losses(recipe: object, device: torch.device) -> list[float]:
    reporter = Counting(3)
    train(run_of(recipe, device), reporter)
    return [float(loss) for loss in reporter.losses]


def _pixels(name: str, device: torch.device) -> dict:
    """Return the share of values that are more than one grey level from the CPU's."""
    images = torch.randint(
        0, 256, (16, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    value = torch.linspace(0.1, 0.9, 16) * (
        8 if name in ("posterize", "translate_x", "translate_y", "rotate") else 1
    )
    value = (
        value * 200
        if name == "solarize"
        else value.floor()
        if name in ("posterize", "translate_x")
        else value
    )
    expected, found = (
        PIXEL_OPS[name](images.to(place), value.to(place)).cpu().int() for place in (CPU, device)
    )
    return _row(
        f"pixels, {name}",
        float(((expected - found).abs() > 1).float().mean()),
        1e-3,
        "of the values differ",
    )


def _overflow(device: torch.device) -> dict:
    """Let float16 overflow: weights and statistics must not change."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(device)
    precision, operations = (
        Precision(device, torch.float16, model),
        ops.choose(device, torch.float16),
    )
    optimizer = DecoupledSGDW(lr=0.1).build(model, operations)
    kept = {
        name: value.clone()
        for name, value in model.state_dict().items()
        if value.is_floating_point()
    }
    precision.before_step()
    with precision.autocast():
        loss = model(torch.full((2, 3, 8, 8), 6e4, device=device)).float().square().sum() * float(
            "inf"
        )
    precision.backward(loss)
    precision.step(optimizer, None)
    same = all(
        torch.equal(value, kept[name]) for name, value in model.state_dict().items() if name in kept
    )
    return _row("overflow in fp16 changes nothing", 0.0 if same else 1.0, 0.5, "changed")


def _copies(dtype: str, settings: type[OptimizerSettings], device: torch.device) -> dict:
    """Take steps with an optimizer; count weights that did not change, or whose cast copy is not theirs."""
    recipe = replace(
        recipe_of("mild", 64, 16, True, precision={"dtype": dtype}), optimizer=settings()
    )
    run = run_of(recipe, device)
    copies = run.model.copies
    before = {weight: weight.clone() for weight in copies}
    train(run, Counting(8))
    copies.renew()
    wrong = sum(
        torch.equal(weight, before[weight]) or not torch.equal(copy, weight.to(copy.dtype))
        for weight, copy in copies.items()
    )
    return _row(
        f"8 steps of {settings.name}, {dtype}", float(wrong), 0, "weights or their copies are wrong"
    )


def _checkpoint(device: torch.device, quick: bool) -> dict:
    """Save after two steps, load into a new run, and compare the third."""
    side, batch = (32, 4) if quick else (64, 16)
    recipe = recipe_of("mild", side, batch, True, precision={"dtype": "fp32"})
    first, second = run_of(recipe, device), run_of(recipe, device)
    done = train(first, Counting(2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        torch.save((first.model.state_dict(), first.optimizer.state_dict()), path)
        model, optimizer = torch.load(path, map_location=device)
    second.model.load_state_dict(model)
    second.optimizer.load_state_dict(optimizer)
    losses = []
    for run in (first, second):
        reporter = Counting(1)
        train(run, reporter, done)
        losses.append([float(reporter.losses[0])])
    return _row("a step after a checkpoint", _apart(*losses), ALLOWED, "relative error of the loss")


def _replayed(name: str, dtype: str, device: torch.device) -> dict:
    """Compare twelve steps that replay their gradients with twelve that do not, with the same random draws."""
    recipe, told, runs, losses = (
        recipe_of(name, 64, 16, True, precision={"dtype": dtype}),
        [],
        [],
        [],
    )
    torch.backends.cudnn.deterministic = True
    for patience in (0, graphs.PATIENCE):
        with patch.object(graphs, "PATIENCE", patience):
            run, reporter = run_of(recipe, device), Counting(12)
            run.graphs.tell = told.append
            run.graphs = None if patience else run.graphs
            train(run, reporter)
        runs.append(run)
        losses.append([float(loss) for loss in reporter.losses])
    torch.backends.cudnn.deterministic = False
    same = sum(
        torch.equal(a, b) for a, b in zip(*(run.model.parameters() for run in runs), strict=True)
    )
    row = _row(
        f"12 steps of {name} as CUDA graphs, {dtype}",
        _apart(*losses),
        ALLOWED,
        "relative error of the loss",
    )
    row["note"] = f"{same} of {len(list(run.model.parameters()))} parameters have the same bits"
    return row | {"fault": told[0]} if told else row


def _waits(device: torch.device) -> dict:
    """Take 20 steps of Medium while torch raises an error for anything that waits for the device."""
    run = run_of(recipe_of("medium", 64, 16, True), device)
    done = train(run, Counting(12))
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(run, Counting(20), done)
    except RuntimeError as error:
        return {
            "case": "20 steps without waiting",
            "value": False,
            "unit": "right",
            "fault": str(error).split("\n")[0],
        }
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"case": "20 steps without waiting", "value": True, "unit": "right"}


def _nccl(device: torch.device) -> dict:
    """Compare steps in an NCCL group of one rank with steps without a group."""
    recipe = recipe_of("medium", 64, 16, True, precision={"dtype": "fp32"})
    alone, grouped = run_of(recipe, device), run_of(recipe, device)
    with tempfile.TemporaryDirectory() as folder:
        store = torch.distributed.FileStore(str(Path(folder) / "store"), 1)
        torch.distributed.init_process_group(
            "nccl", store=store, rank=0, world_size=1, device_id=device
        )
        grouped.exchange = Exchange(grouped.model)
        losses = []
        for run in (alone, grouped):
            reporter = Counting(12)
            run.graphs = None  # which would keep the exchange of a single process
            train(run, reporter)
            losses.append([float(reporter.losses[-1])])
        torch.distributed.destroy_process_group()
    return _row("12 steps of Medium over NCCL", _apart(*losses), 1e-3, "relative error of the loss")


def _apart(expected: list[float], found: list[float]) -> float:
    """Return the largest relative difference; NaN if any value is NaN."""
    expected, found = torch.tensor(expected), torch.tensor(found)
    return float(((found - expected) / expected).abs().max())


def _row(case: str, error: float, allowed: float, unit: str) -> dict:
    row = {"case": case, "value": error, "unit": unit, "allowed": allowed}
    return (
        row
        if error <= allowed
        else row | {"fault": f"{error:.2e} {unit}, where {allowed:.0e} is allowed"}
    )

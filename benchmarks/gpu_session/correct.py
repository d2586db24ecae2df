"""Whether the device computes what the CPU computes: operations, methods, pixels, and steps that wait for nothing."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from session import Counting, recipe_of, run_of
from torch import nn

from resnet_recipes import ops
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.pixel_ops import PIXEL_OPS
from resnet_recipes.train.exchange import Exchange
from resnet_recipes.train.loop import train
from resnet_recipes.train.precision import Precision

CPU = torch.device("cpu")

#: How far a loss may be from the CPU's after three steps in float32, as a share of it.
ALLOWED = 1e-4


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield a row for each comparison; a difference that rounding does not explain is a fault."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if device.type == "cuda":
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            notes = ops.choose(device, dtype).notes
            name = str(dtype).removeprefix("torch.")
            yield {"case": f"fused operations, {name}", "value": not notes, "unit": "right", "fault": "; ".join(notes)}
    for name in PIXEL_OPS:
        yield _pixels(name, device)
    for changes in _methods():
        yield _method(changes, device, quick)
    yield _overflow(device)
    yield _checkpoint(device, quick)
    if device.type == "cuda":
        yield _waits(device)
        yield _nccl(device)


def _methods() -> Iterator[dict[str, dict | None]]:
    """Yield the methods that a run has: none, and each alone."""
    none = {cls.name: None for cls in ORDER}
    yield none
    for cls in ORDER:
        in_workers = cls().provides("augment_sample") and not cls().provides("augment_pixels")
        if not in_workers and not cls().draws_in_forward:       # a device draws other numbers than a CPU
            yield none | {cls.name: {}}


def _method(methods: dict, device: torch.device, quick: bool) -> dict:
    """Compare the losses of three steps of a ResNet-18 in float32, with every draw the same."""
    case = f"3 steps, {', '.join(name for name, value in methods.items() if value is not None) or 'no methods'}"
    side, batch = (32, 4) if quick else (64, 16)
    recipe = recipe_of("mild", side, batch, True, methods=methods, precision={"dtype": "fp32"})
    found = [_losses(recipe, place) for place in (CPU, device)]
    error = max(abs(a - b) / abs(a) for a, b in zip(*found, strict=True))
    return _row(case, error, ALLOWED, "of the loss")


def _losses(recipe: object, device: torch.device) -> list[float]:
    keeper = Counting(3)
    train(run_of(recipe, device), keeper)
    return [float(loss) for loss in keeper.losses]


def _pixels(name: str, device: torch.device) -> dict:
    """Count the values that are more than one grey level from the CPU's."""
    images = torch.randint(0, 256, (16, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    value = torch.linspace(0.1, 0.9, 16) * (8 if name in ("posterize", "translate_x", "translate_y", "rotate") else 1)
    value = value * 200 if name == "solarize" else value.floor() if name in ("posterize", "translate_x") else value
    expected, found = (PIXEL_OPS[name](images.to(place), value.to(place)).cpu().int() for place in (CPU, device))
    return _row(f"pixels, {name}", float(((expected - found).abs() > 1).float().mean()), 1e-3, "of the values differ")


def _overflow(device: torch.device) -> dict:
    """Let float16 overflow: weights and statistics stay as they were."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(device)
    precision = Precision(device, torch.float16, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    kept = {name: value.clone() for name, value in model.state_dict().items() if value.is_floating_point()}
    precision.before_step()
    with precision.autocast():
        loss = model(torch.full((2, 3, 8, 8), 6e4, device=device)).float().square().sum() * float("inf")
    precision.backward(loss)
    precision.step(optimizer, None)
    same = all(torch.equal(value, kept[name]) for name, value in model.state_dict().items() if name in kept)
    return _row("overflow in fp16 changes nothing", 0.0 if same else 1.0, 0.5, "changed")


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
        keeper = Counting(1)
        train(run, keeper, done)
        losses.append(float(keeper.losses[0]))
    return _row("a step after a checkpoint", abs(losses[0] - losses[1]) / abs(losses[0]), ALLOWED, "of the loss")


def _waits(device: torch.device) -> dict:
    """Take 20 steps of Medium while torch forbids whatever waits for the device."""
    run = run_of(recipe_of("medium", 64, 16, True), device)
    done = train(run, Counting(12))
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(run, Counting(20), done)
    except RuntimeError as error:
        return {"case": "20 steps without waiting", "value": False, "unit": "right", "fault": str(error).split("\n")[0]}
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"case": "20 steps without waiting", "value": True, "unit": "right"}


def _nccl(device: torch.device) -> dict:
    """Compare steps of the only rank of an NCCL group with steps without one."""
    recipe = recipe_of("medium", 64, 16, True, precision={"dtype": "fp32"})
    alone, grouped = run_of(recipe, device), run_of(recipe, device)
    with tempfile.TemporaryDirectory() as folder:
        store = torch.distributed.FileStore(str(Path(folder) / "store"), 1)
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
        grouped.exchange = Exchange(grouped.model)
        losses = []
        for run in (alone, grouped):
            keeper = Counting(12)
            train(run, keeper)
            losses.append(float(keeper.losses[-1]))
        torch.distributed.destroy_process_group()
    return _row("12 steps of Medium over NCCL", abs(losses[0] - losses[1]) / abs(losses[0]), 1e-3, "of the loss")


def _row(case: str, error: float, allowed: float, unit: str) -> dict:
    row = {"case": case, "value": error, "unit": unit, "allowed": allowed}
    return row if error <= allowed else row | {"fault": f"{error:.2e} {unit}, where {allowed:.0e} is allowed"}

"""Train airbench94 and the recipe `small` on the same images with the same compute.

    python benchmarks/airbench.py CIFAR10 [--epochs 2.75,9.9] [--seeds 1,2,3] [--json FILE]

CIFAR10 has train/ and val/ with a folder of 32 px images per class. airbench94 (Jordan, 2024,
arXiv:2404.00498) is reimplemented here from the paper and its author's published settings, with
images from our loader. `resnet-train` trains `small` for the number of epochs with the closest
compute. FLOPs of both are counted in the same way: multiplications and additions, forward and
backward, without evaluation. 9.9 epochs take about 35 minutes on one core with AVX-512 BF16, and
seconds on a GPU.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import resnet_recipes as rr

BATCH = 1024
MOMENTUM = 0.85
# The author's learning rate and decay are for steps as long as the mean gradient. Nesterov momentum
# makes a step this many times longer.
NESTEROV_FACTOR = 1 + 1 / (1 - MOMENTUM)
PEAK_LR = 11.5 / NESTEROV_FACTOR
WEIGHT_DECAY = 0.0153 / NESTEROV_FACTOR  # fraction of a weight lost in a step at the peak lr
BIAS_SCALE = 64  # learning rate of BatchNorm biases, relative to PEAK_LR
LABEL_SMOOTHING = 0.2
FIRST_BIAS_EPOCHS = 3  # epochs that train the bias of the first layer
MAX_SHIFT_PIXELS = 2  # translation of a training image
WIDTHS = (64, 256, 256)
STATISTICS_DECAY = 0.6  # fraction of the BatchNorm running statistics kept per step
LOGIT_SCALE = 1 / 9
WARMUP_FRACTION = 0.23  # fraction of the run in which the learning rate rises
FIRST_LR_FACTOR, LAST_LR_FACTOR = 0.2, 0.07  # learning rates at start and end, relative to PEAK_LR
LOOKAHEAD_STEPS = 5  # steps between updates of the slow weights

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

SMALL_EPOCH_PFLOPS = 0.0105
SMALL = ["small", "precision.dtype=bf16", "model.width=0.25", "evaluation.flip=true"]


def load_pixels(data: str, split: str) -> tuple[Tensor, Tensor]:
    """Return all images of a split as uint8 [N, 3, 32, 32], and labels [N], from our loader."""
    config = rr.data.DataConfig(
        root=data,
        train_size=32,
        eval_resize=32,
        eval_size=32,
        crop_scale=(1.0, 1.0),
        crop_ratio=(1.0, 1.0),
        flip=False,
        reduced_decode=False,
    )
    facts = rr.data.survey_images(config)
    count = facts.train_examples if split == "train" else facts.eval_examples
    batching = rr.data.Batching(rank=0, world_size=1, global_size=500, eval_size=500, seed=0)
    loader = (rr.data.open_train if split == "train" else rr.data.open_eval)(
        config, facts, batching
    )
    batches = [
        (batch.pixels.clone(), batch.labels.clone())
        for _, batch in zip(range(count // 500), loader.batches(), strict=False)
    ]
    loader.close()
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def normalize(images: Tensor) -> Tensor:
    """Return float32 pixels normalized with the CIFAR-10 mean and standard deviation."""
    mean, std = (
        torch.tensor(values, device=images.device)[:, None, None] for values in (MEAN, STD)
    )
    return (images / 255 - mean) / std


def make_convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """Return a 3x3 convolution whose first outputs equal its inputs."""
    layer = nn.Conv2d(inputs, outputs, 3, padding="same", bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[:inputs])
    return layer


def make_batch_norm(channels: int) -> nn.BatchNorm2d:
    """Return a BatchNorm with a trainable bias and a fixed weight."""
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=1 - STATISTICS_DECAY)
    layer.weight.requires_grad = False
    return layer


def build_network(images: Tensor) -> nn.Sequential:
    """Return the network, with a first layer that whitens 2x2 patches of these images."""
    first = nn.Conv2d(3, 24, 2)
    layers: list[nn.Module] = [first, nn.GELU()]
    for inputs, outputs in zip((24, *WIDTHS[:-1]), WIDTHS, strict=True):
        layers += [
            make_convolution(inputs, outputs),
            nn.MaxPool2d(2),
            make_batch_norm(outputs),
            nn.GELU(),
        ]
        layers += [make_convolution(outputs, outputs), make_batch_norm(outputs), nn.GELU()]
    head = nn.Linear(WIDTHS[-1], 10, bias=False)
    layers += [nn.MaxPool2d(3), nn.Flatten(), head]
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
    variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (directions / (variances + 5e-4).sqrt()).T.flip(0).reshape(12, 3, 2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.cat([filters, -filters]))
        first.bias.zero_()
    first.weight.requires_grad = False
    return nn.Sequential(*layers).to(images.device, memory_format=torch.channels_last)


def compute_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Return the scaled outputs, float32 [N, 10], computed in bfloat16."""
    with torch.autocast(images.device.type, torch.bfloat16):
        return model(images.contiguous(memory_format=torch.channels_last)).float() * LOGIT_SCALE


def generate_batches(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield shuffled batches endlessly, translated by up to MAX_SHIFT_PIXELS pixels.

    Half of the images are flipped horizontally, the other half in the next epoch.
    """
    device = images.device
    pixels = torch.arange(32, device=images.device)
    flipped = torch.rand(len(images), device=device) < 0.5
    padded = F.pad(images, (MAX_SHIFT_PIXELS,) * 4, "reflect")
    while True:
        order = torch.randperm(len(images), device=device)
        for chosen in order.split(BATCH)[: len(images) // BATCH]:
            corner = torch.randint(0, 2 * MAX_SHIFT_PIXELS + 1, (2, len(chosen), 1), device=device)
            rows, columns = corner + pixels
            columns = torch.where(flipped[chosen][:, None], columns.flip(-1), columns)
            batch = padded[chosen[:, None, None], :, rows[:, :, None], columns[:, None, :]]
            yield batch.permute(0, 3, 1, 2), labels[chosen]
        flipped = ~flipped


def compute_lr_factor(done: float) -> float:
    """Return the learning rate, relative to its peak, after this fraction of the run."""
    if done < WARMUP_FRACTION:
        return FIRST_LR_FACTOR + (1 - FIRST_LR_FACTOR) * done / WARMUP_FRACTION
    return 1 - (1 - LAST_LR_FACTOR) * (done - WARMUP_FRACTION) / (1 - WARMUP_FRACTION)


def group_parameters(model: nn.Sequential) -> list[dict]:
    """Return BatchNorm biases and all other weights, with learning rates and decay."""
    biases = [layer.bias for layer in model if isinstance(layer, nn.BatchNorm2d)]
    bias_ids = set(map(id, biases))
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in bias_ids]
    return [
        {"params": chosen, "lr": peak, "peak": peak, "weight_decay": WEIGHT_DECAY / peak}
        for chosen, peak in ((biases, PEAK_LR * BIAS_SCALE), (others, PEAK_LR))
    ]


def train(images: Tensor, labels: Tensor, epochs: float) -> tuple[nn.Module, float]:
    """Train for this number of epochs, and return the network and its PFLOPs."""
    model = build_network(images[:5000])
    steps = round(epochs * (len(images) // BATCH))
    optimizer = torch.optim.SGD(
        group_parameters(model), lr=PEAK_LR, momentum=MOMENTUM, nesterov=True
    )
    slow = {name: value.clone() for name, value in model.state_dict().items()}
    counter = FlopCounterMode(display=False)
    for step, (batch, targets) in zip(range(steps), generate_batches(images, labels), strict=False):
        model[0].bias.requires_grad = step < FIRST_BIAS_EPOCHS * (len(images) // BATCH)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * compute_lr_factor(step / steps)
        with counter if step == 0 else torch.enable_grad():
            loss = F.cross_entropy(
                compute_logits(model, batch), targets, label_smoothing=LABEL_SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        last = step + 1 == steps
        if last or (step + 1) % LOOKAHEAD_STEPS == 0:
            slow_fraction = 1.0 if last else 0.95**5 * ((step + 1) / steps) ** 3
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    slow[name].lerp_(value, 1 - slow_fraction)
                    value.copy_(slow[name])
    return model.eval(), counter.get_total_flops() * steps / 1e15


@torch.inference_mode()
def compute_top1(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return top-1 in percent with flipping at test time, and with flipping and translation."""
    flipped, translated = [], []
    for batch in images.split(2000):
        padded = F.pad(batch, (1,) * 4, "reflect")
        views = [batch, padded[..., :32, :32], padded[..., 2:, 2:]]
        means = [
            compute_logits(model, view) + compute_logits(model, view.flip(-1)) for view in views
        ]
        flipped.append(means[0])
        translated.append(2 * means[0] + means[1] + means[2])
    fractions = [
        (torch.cat(logits).argmax(1) == labels).float().mean().item()
        for logits in (flipped, translated)
    ]
    return 100 * fractions[0], 100 * fractions[1]


def train_small(data: str, epochs: int, seed: int) -> dict:
    """Train the recipe `small`, and return its summary."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            *SMALL,
            f"data={data}",
            f"epochs={epochs}",
            f"seed={seed}",
            f"run.root={folder}",
        ]
        command = [sys.executable, "-m", "resnet_recipes", *settings, "run=small"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(folder, "small/summary.json").read_text())


def main() -> None:
    """Train both networks for each duration and seed; print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--epochs", default="2.75,9.9", help="of airbench94")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    data = str(Path(arguments.data).absolute())
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, labels, val_images, val_labels = (
        tensor.to(device) for split in ("train", "val") for tensor in load_pixels(data, split)
    )
    images = normalize(images)
    val_images = normalize(val_images)
    rows = []
    for epochs in map(float, arguments.epochs.split(",")):
        airbench_top1, small_top1 = [], []
        for seed in seeds:
            torch.manual_seed(seed)
            model, pflops = train(images, labels, epochs)
            flipped, translated = compute_top1(model, val_images, val_labels)
            airbench_top1.append(translated)
            accuracy = f"{translated:.2f} % ({flipped:.2f} % with flips only)"
            print(f"airbench94, {pflops:.2f} PFLOPs, seed {seed}: {accuracy}", flush=True)
        for seed in seeds:
            summary = train_small(data, max(1, round(pflops / SMALL_EPOCH_PFLOPS)), seed)
            small_top1.append(summary["raw_top1_percent"])
            cost = f"{summary['training_pflops']:.2f} PFLOPs"
            print(f"small, {cost}, seed {seed}: {small_top1[-1]:.2f}%", flush=True)
        ours = statistics.mean(small_top1)
        peer = statistics.mean(airbench_top1)
        case = f"small / airbench94, {pflops:.2f} PFLOPs"
        row = {"case": case, "ours": ours, "peer": peer, "ratio": ours / peer}
        rows.append(row | {"unit": "top-1 percent"})
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

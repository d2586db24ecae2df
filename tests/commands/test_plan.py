"""`resnet-recipes plan`: predicted times, memory, and notes with settings that help."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from PIL import Image

from resnet_recipes import cuda
from resnet_recipes.base import cores
from resnet_recipes.data import sample
from resnet_recipes.data.loading import slots
from resnet_recipes.jobs.machine import loading, memory
from resnet_recipes.planning import estimate
from tests.shared.checks import check_text
from tests.shared.run_folders import create_folder_with_weights
from tests.shared.tables import parse_rows, parse_values


@pytest.fixture
def print_plan(monkeypatch: pytest.MonkeyPatch, run_command) -> Callable[..., str]:
    def show(name: str, gigabytes: float, arguments: str = "") -> str:
        gpus = cuda.VisibleGpus(8, name, "bf16", int(gigabytes * 1e9))
        monkeypatch.setattr(cuda, "find_gpus", lambda: gpus)
        line = f"resnet-recipes plan mild launch.device=cuda gpus=8 {arguments}"
        return " ".join(run_command(line).out.split())

    return show


def test_plan_predicts_time_of_known_gpu(print_plan, monkeypatch):
    monkeypatch.setattr(cores, "count_cores", lambda: 1000)
    text = print_plan("NVIDIA A100-SXM4-80GB", 85, "workers=100 --verbose")
    assert (
        "with evaluations, without startup: predicted for 8 x A100 80GB; `resnet-recipes estimate`"
        in text
    )
    assert "images/s at 88 px (memory traffic), " in text
    assert "images/s at 176 px (memory traffic)" in text


def create_images(root: Path, size: tuple[int, int]) -> None:
    for name in ("train/a", "train/b", "val/a", "val/b"):
        (root / name).mkdir(parents=True)
        Image.new("RGB", size).save(root / name / "0.jpg")


def test_plan_notes_images_larger_than_the_recipe_expects(run_command, tmp_path):
    create_images(tmp_path, (150, 120))
    line = f"resnet-train small data={tmp_path} bs=2 --dry-run"
    note = "is for smaller images than these, of 120 px hint the recipe finetune is for photographs"
    for flag, is_noted in (("", True), ("--no-plan", True), ("data.train_size=100", False)):
        assert (note in " ".join(run_command(f"{line} {flag}").out.split())) == is_noted


def test_plan_notes_images_smaller_than_the_recipe_expects(run_command, tmp_path):
    create_images(tmp_path, (32, 40))
    line = f"resnet-recipes plan mild bs=2 data={tmp_path}"
    text = " ".join(run_command(line).out.split())
    assert "the images have 32 px, and data.train_size=176 enlarges them hint the recipe" in text
    assert "enlarges" not in run_command(f"{line} data.train_size=32").out
    text = " ".join(run_command(f"{line} model.weights=torchvision").out.split())
    assert "enlarges them" in text
    assert "the recipe small" not in text


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        # 4 steps of 4 images in an epoch; an evaluation of 160 images costs 15 of them
        ("epochs=3 evaluation.interval=1ba", "evaluation.interval=1dur"),
        ("epochs=30 evaluation.interval=1ba", "evaluation.interval=4ep"),
        ("epochs=3 evaluation.interval=1dur", ""),
    ],
)
def test_plan_notes_evaluations_longer_than_training(
    arguments, setting, run_command, tmp_path, monkeypatch
):
    monkeypatch.setattr(estimate, "MIN_NOTED_SECONDS", 0.0)
    for split, count in (("train", 8), ("val", 80)):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(count):
                Image.new("RGB", (32, 32), (index, 9, 9)).save(
                    tmp_path / split / name / f"{index}.png"
                )
    command = f"resnet-recipes plan small data={tmp_path} bs=4 launch.device=cpu"
    lines = [line.split() for line in run_command(f"{command} {arguments}").out.splitlines()]
    assert (["use", setting] in lines) == bool(setting)
    note = "note evaluations take at least as long as training"  # rounded times may not add up
    assert (note.split() in lines) == bool(setting)


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
mild launch.device=cuda | device 1 x GPU (this machine has no GPU) | \
time not predicted without a GPU disk
mild gpus=1 | 1 x GPU (this machine has no GPU)
mild launch.device=cuda model.name=resnet18 | time not predicted without a GPU disk
mild launch.device=cpu gpus=2 model.name=resnet18 | time not predicted disk
mild gpus=8 launch.price=32.77 | \
cost unknown, like the time; the published 25.3 min for 32 epochs on 8x A100 80GB would cost $13.82
mild gpus=8 launch.price=36 lr=1 | 32 epochs of unchanged mild on 8x A100 80GB would cost
mild | note a CPU is too slow for this run; a plan can be for GPUs elsewhere try \
resnet-recipes plan mild gpus=8
mild gpus=8 | !too slow
mild launch.device=cpu | !too slow
finetune | !too slow
finetune gpus=8 launch.price=32.77 | cost unknown, like the time disk
mild launch.device=cpu launch.price=32.77 | cost about $
demo launch.device=cpu launch.price=0.0001 | cost <$0.01 at $0.0001 per hour
mild launch.device=cpu | !cost
mild gpus=8 | !cost
"""
    ),
)
def test_plan_without_a_gpu_explains_time_and_cost(row, run_command, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: cuda.VisibleGpus(0))
    arguments, *parts = row
    check_text(" ".join(run_command(f"resnet-recipes plan {arguments}").out.split()), parts)


@pytest.mark.parametrize(("ranks", "is_noted"), [(2, False), (8, True)])
def test_plan_notes_that_machine_has_fewer_gpus(ranks, is_noted, run_command, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: cuda.VisibleGpus(2, "H200"))
    out = run_command(f"resnet-recipes plan mild gpus={ranks}").out
    assert (f"{ranks} x H200 (this machine has 2 GPUs)" in out) == is_noted
    assert "a CPU is too slow" not in out


def test_json_of_plan_has_time_cost_and_notes(run_json, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", lambda: cuda.VisibleGpus(0))
    values = run_json("resnet-recipes plan mild gpus=8 launch.price=36")
    assert values["device"].startswith("8 x GPU (this machine has no GPU)")
    assert (values["seconds"], values["seconds_source"], values["cost"]) == (None, "", None)
    assert (values["published"]["minutes"], values["published"]["epochs"]) == (25.3, 32)
    missing = "data= is missing, so this plan assumes ImageNet-1k"
    assert values["notes"] == [{"text": missing, "fix": []}]
    values = run_json("resnet-recipes plan mild launch.device=cpu launch.price=36")
    assert values["cost"] == pytest.approx(values["seconds"] / 100)
    assert values["seconds_source"].startswith("a guess from the network's FLOPs")


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
 | NVIDIA A100-SXM4-80GB | 85 | !images/s
--verbose | NVIDIA Z1 | 85 | !loading limits | time `resnet-recipes estimate` measures this run
precision.dtype=fp32 | NVIDIA A100-SXM4-80GB | 85 | published unchanged mild: 76.6% top-1
--verbose | NVIDIA A100-SXM4-80GB | 85 | of 85 GB per GPU: predicted, not measured | !WARNING
 | Tesla T4 | 8 | WARNING may not fit in GPU memory: batch.bn_size=128 needs about half as much
--verbose | NVIDIA Z1 | 0 | !memory about
"""
    ),
)
def test_plan_shows_published_result_and_memory(row, print_plan):
    arguments, name, gigabytes, *parts = row
    check_text(print_plan(name, int(gigabytes), arguments), parts)


def test_plan_shows_slow_loading_with_its_fix(print_plan, monkeypatch):
    for module in (cores, slots):
        monkeypatch.setattr(module, "count_cores", lambda: 16)
    monkeypatch.setattr(memory, "get_available_memory", lambda: 10**12)
    monkeypatch.setattr(
        sample, "CROP_MILLISECONDS", dict.fromkeys(("native", "Python"), (1.0, 0.1, 3.0))
    )
    monkeypatch.setattr(loading, "find_decoder_fault", lambda: "")
    text = print_plan("NVIDIA A100-SXM4-80GB", 85, "epochs=32")
    limits = "slows the run down: 44 minutes instead of 11 minutes"
    fix = "decoded in memory (363 GB of 799 GB usable): 15 minutes use: cache=auto"
    assert f"loading {limits}; {fix}" in text


@pytest.mark.parametrize(
    ("arguments", "gigabytes", "text"),
    parse_rows(
        """
cache=auto | 1000 | 100% of the images fit at 352 px: 363 GB of 799 GB usable
cache=auto | 100 | none: 39% of the images fit at 264 px: 203 GB of 78.5 GB usable
cache=352 | 100 | 22% of the images fit at 352 px: 363 GB of 78.5 GB usable
"""
    ),
)
def test_plan_shows_which_images_stay_in_memory(
    arguments, gigabytes, text, print_plan, monkeypatch
):
    monkeypatch.setattr(memory, "get_available_memory", lambda: int(gigabytes) * 10**9)
    assert f"in memory {text}" in print_plan("NVIDIA A100-SXM4-80GB", 85, arguments)


def test_plan_without_weights_imports_no_torchvision(print_plan, monkeypatch):
    monkeypatch.delattr("resnet_recipes.network.pretrained")
    # an import would fail
    monkeypatch.setitem(sys.modules, "resnet_recipes.network.pretrained", None)
    assert "recipe mild" in print_plan("NVIDIA A100-SXM4-80GB", 85)


@pytest.mark.parametrize(
    ("arguments", "channels", "message"),
    parse_values(
        """
'' | 3 | blurpool is kept, '~methods.blurpool' removes it
methods.blurpool.min_channels=8 | 8 | blurpool is kept
'~methods.blurpool' | null | blurpool is removed
"""
    ),
)
def test_plan_keeps_blurpool_of_pretrained_weights(
    arguments, channels, message, make_run, tmp_path, monkeypatch, run_command
):
    monkeypatch.setenv("COLUMNS", "1000")
    run = create_folder_with_weights(
        make_run, tmp_path / "run", methods={"blurpool": {"min_channels": 3}}
    )
    base = f"data={tmp_path}/images bs=2 batch.bn_size=2 model.name=resnet18"
    line = f"finetune {base} model.weights={run} {arguments}"
    assert message in " ".join(run_command(f"resnet-recipes plan {line}").out.split())
    blurpool = yaml.safe_load(run_command(f"resnet-train {line} --cfg").out)["methods"].get(
        "blurpool"
    )
    assert (blurpool and blurpool["min_channels"]) == channels


@pytest.mark.parametrize("command", ["resnet-recipes plan", "resnet-train --dry-run"])
def test_plan_without_weights_notes_the_fetching_command(
    command, run_command, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    text = " ".join(run_command(f"{command} finetune model.name=resnet18").out.split())
    assert "start from torchvision; only the classifier is trained" in text
    fetch = "torchvision.models.resnet18(weights='IMAGENET1K_V1')"
    assert f'are not on this machine try python3 -c "import torchvision; {fetch}"' in text
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    text = run_command(
        f"{command} finetune model.name=resnet18 model.weights=timm:resnet18.a1_in1k"
    ).out
    assert "hf download timm/resnet18.a1_in1k model.safetensors" in " ".join(text.split())
    # a missing or damaged file is an error
    (tmp_path / "w.pth").write_text("no weights")
    for path in ("nowhere.pth", tmp_path / "w.pth"):
        run_command(f"{command} finetune model.name=resnet18 model.weights={path}", 3)


@pytest.mark.parametrize(("threads", "cores", "minutes"), [("1", "1 core", 8), ("2", "2 cores", 4)])
def test_plan_assumes_cores_of_thread_setting(threads, cores, minutes, run_command, monkeypatch):
    monkeypatch.setattr("resnet_recipes.planning.predictions.is_emulated", lambda _: False)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    arguments = "small data.backend=synthetic model.width=0.25 epochs=400"
    out = " ".join(run_command(f"resnet-recipes plan {arguments}").out.split())
    assert f"device CPU with {cores}, fp32 time about {minutes} minutes" in out

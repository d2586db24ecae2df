"""Every baseline trains, learns, and resumes bit-identically within an epoch.

By default one baseline runs; `-m exhaustive` runs all, on one rank and on two.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.recipe.compose import compose
from tests.jobs.small_runs import assert_same_weights, copy_as_killed
from tests.shared import run_folders
from tests.shared.tables import parse_rows

pytestmark = pytest.mark.slow

#: Peak learning rates for batches of 16.
RATES = dict(
    parse_rows(
        """
nvidia_dle | 0.05
nvidia_hparams | 0.05
nvidia_hparams_mlperf | 0.05
nvidia_mlperf_pt | 5.0
pytorch_v1 | 0.05
pytorch_v2 | 0.05
ffcv_rn50 | 0.05
timm_a1 | 0.01
timm_a2 | 0.01
timm_a3 | 0.01
"""
    )
)


@pytest.fixture(scope="module")
def two_class_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 training images of two classes, bright and dark, and eight for validation."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for split, count in (("train", 32), ("val", 4)):
        for name, low in (("bright", 150), ("dark", 0)):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                coarse = rng.integers(low, low + 100, (4, 4, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize((40, 36)).save(root / split / name / f"{number}.jpg")
    return root


def create_run(folder: Path, name: str, images: Path, ranks: int) -> Path:
    arguments = (
        f"data={images} bs=16 batch.bn_size={16 // ranks} lr={RATES[name]} model.name=resnet34 "
        "data.train_size=32 data.eval_resize=32 data.eval_size=32 data.crop_scale=[0.5,1.0] "
        "max_duration=3ep ssr=1 schedule.warmup=0.5ep launch.device=cpu workers=0 log.interval=1ba "
        "checkpoint.interval=6ba evaluation.interval=1dur evaluation.offset=0ep"
    ).split()
    arguments += {
        "ffcv_rn50": ["~methods.progressive_resizing", "~methods.blurpool"],
        # its first epoch would use a hundredth of the learning rate, and its augmentation changes
        # brightness, which distinguishes the classes
        "pytorch_v2": ["schedule.warmup=0ep", "~methods.trivial_augment"],
    }.get(name, [])
    return run_folders.create_unstarted_run(folder, compose(name, arguments).recipe)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("timm_a1", 2),  # LAMB; three copies per image
        *(
            pytest.param(name, ranks, marks=pytest.mark.exhaustive)
            for name in RATES
            for ranks in (1, 2)
        ),
    ],
)
def test_baseline_learns_and_resumes_bit_identically(
    name, ranks, two_class_images, launcher, tmp_path
):
    whole = launcher.train(create_run(tmp_path / "whole", name, two_class_images, ranks), ranks)
    assert_same_weights(launcher.train(copy_as_killed(6, whole), ranks), whole, 12)
    losses = [
        record["loss"]
        for record in map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
        if record["kind"] == "step"
    ]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])

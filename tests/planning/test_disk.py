"""The planned disk space of a run equals the size of its files."""

import pytest

from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows


def plan_disk(arguments: str = ""):
    return plan_imagenet(f"mild {arguments}", 1).disk


#: Weights, momentum and EMA are three copies. The copy of SAM is not saved.
@pytest.mark.parametrize(
    ("arguments", "copies"),
    parse_rows(
        """
 | 3
~methods.ema | 2
~methods.ema optimizer=lamb | 3
checkpoint.best=top1 | 4
optimizer=adamw methods.sam={} | 4
"""
    ),
)
def test_checkpoint_size_counts_weights_and_their_copies(arguments, copies):
    weights = 4 * 25_557_032  # parameters of ResNet-50 in torchvision
    estimate = plan_disk(arguments)
    assert estimate.checkpoint_bytes == pytest.approx(int(copies) * weights, rel=0.02)
    # final, raw and best weights
    files = 1 + ("~methods.ema" not in arguments) + ("checkpoint.best=top1" in arguments)
    assert estimate.weight_bytes == pytest.approx(files * weights, rel=0.02)


@pytest.mark.parametrize(
    ("frozen", "trained"),
    # ResNet-18 has 11,689,512 weights; conv1, bn1 and layer1 have 9,408 + 128 + 147,968
    [("none", 11_689_512), ("layer1", 11_689_512 - 157_504), ("backbone", 513_000)],
)
@pytest.mark.parametrize("network", ["resnet18", "torchvision:resnet18"])
def test_checkpoint_omits_moments_of_frozen_weights(network, frozen, trained):
    arguments = f"finetune model.name={network} model.freeze={frozen} optimizer=adamw"
    expected = 4 * (11_689_512 + 2 * trained)
    assert plan_imagenet(arguments, 1).disk.checkpoint_bytes == pytest.approx(expected, rel=0.0101)


#: Two checkpoints are kept until the third is safe. A run of two epochs has only two.
@pytest.mark.parametrize(
    ("arguments", "count"),
    parse_rows(
        """
 | 3
checkpoint.keep=5 | 6
epochs=2 schedule.warmup=1ep | 2
checkpoint.interval=100ep checkpoint.keep=100 | 1
"""
    ),
)
def test_disk_counts_checkpoints_that_exist_at_once(arguments, count):
    assert plan_disk(arguments).checkpoints == int(count)

"""The room on disk that a run is planned to need is what its files take."""

import pytest

from tests.plans import imagenet
from tests.tables import rows


def disk(words: str = ""):
    """Return the plan of Mild's files, on ImageNet."""
    return imagenet(f"mild {words}", 1).disk


#: Weights, momentum and EMA are three copies; SAM's copy is not saved.
@pytest.mark.parametrize(
    ("words", "copies"),
    rows(
        """
 | 3
~methods.ema | 2
~methods.ema optimizer=lamb | 3
checkpoint.best=top1 | 4
optimizer=adamw methods.sam={} | 4
"""
    ),
)
def test_checkpoint_size_counts_weights_and_their_copies(words, copies):
    weights, estimate = 4 * 25_557_032, disk(words)  # torchvision's count of ResNet-50's parameters
    assert estimate.checkpoint == pytest.approx(int(copies) * weights, rel=0.02)
    # the final ones, the raw ones and the best
    files = 1 + ("~methods.ema" not in words) + ("checkpoint.best=top1" in words)
    assert estimate.weights == pytest.approx(files * weights, rel=0.02)


#: Two are kept until a third is safe; two epochs have only two.
@pytest.mark.parametrize(
    ("words", "count"),
    rows(
        """
 | 3
checkpoint.keep=5 | 6
epochs=2 schedule.warmup=1ep | 2
checkpoint.interval=100ep checkpoint.keep=100 | 1
"""
    ),
)
def test_disk_counts_checkpoints_that_exist_at_once(words, count):
    assert disk(words).checkpoints == int(count)

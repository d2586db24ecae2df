"""The kernels compiled for GPUs that need not be here: no spills, 16 bytes at a time, few instructions."""

import pytest

pytest.importorskip("triton")

from resnet_recipes.ops.kernels import blur
from tests.ops.cubin import ARCHITECTURES, cubin

TILE = {"R": blur.ROWS, "BW": blur.COLUMNS, "BC": blur.CHANNELS}
TILE_ELEMENTS = blur.ROWS * blur.COLUMNS * blur.CHANNELS

#: Kernel, arrays, constants, results of a program, instructions a result at most (averages of 2x2 take 300 and more).
BLURS = (
    (blur._gather, ("x", "y"), {"S": 1}, TILE_ELEMENTS, 26),
    (blur._gather, ("x", "y"), {"S": 2}, TILE_ELEMENTS, 36),
    (blur._scatter, ("g", "dx"), {}, 4 * TILE_ELEMENTS, 8),
)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("kernel", "arrays", "constants", "results", "limit"), BLURS, ids=("stride 1", "stride 2", "backward"),
)
def test_blur_costs_few_instructions(kernel, arrays, constants, results, limit, arch, tmp_path):
    arrays = dict.fromkeys(arrays, "bf16")
    binary = cubin(kernel, arch, arrays, ("c",), blur.OPTIONS, tmp_path, **TILE, **constants)
    assert not binary.spills
    assert binary.count("LDG") == binary.count(r"LDG.*\.128") > 0
    assert binary.count("STG") == binary.count(r"STG.*\.128") > 0
    assert len(binary.instructions) * 32 * blur.WARPS / results <= limit

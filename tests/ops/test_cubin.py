"""Kernels compiled for GPUs that need not be present.

No spills, 16-byte loads and stores, few instructions.
"""

import pytest

pytest.importorskip("triton")

from resnet_recipes.ops.kernels import (
    batch_norm,
    blur,
    blurred,
    stem,
)
from tests.ops.cubin import cubin

#: A100, H100 and H200, B200.
ARCHITECTURES = (80, 90, 100)

BLUR_TILE = {"R": blur.ROWS, "BW": blur.COLUMNS, "BC": blur.CHANNELS}
BLUR_ELEMENTS = blur.ROWS * blur.COLUMNS * blur.CHANNELS
FLOATS = dict.fromkeys(
    (
        "shares",
        "saved",
        "keep",
        "sums",
        "weight",
        "bias",
        "running_mean",
        "running_var",
    ),
    "*fp32",
)
ARRAYS = dict.fromkeys(("x", "y", "z", "g", "dx", "residual", "gated", "other"), "*bf16") | FLOATS
ARGUMENTS = ARRAYS | {
    "arrivals": "*i32",
    "tracked": "*i64",
    "momentum": "fp32",
    "eps": "fp32",
    "winner": "*u8",
}


def compiled(kernel, arch, options, folder, **constants):
    """Compile a kernel for bfloat16 activations."""
    types = {name: kind for name, kind in ARGUMENTS.items() if name in kernel.arg_names}
    return cubin(
        kernel, arch, types, ("c",) if "c" in kernel.arg_names else (), options, folder, **constants
    )


def everywhere(cases, usual):
    """Return each case with each architecture.

    Without `-m exhaustive` only the usual one on an H200 is compiled.
    """
    return [
        pytest.param(
            case,
            arch,
            id=f"{case}-sm_{arch}",
            marks=[] if (case, arch) == (usual, 90) else [pytest.mark.exhaustive],
        )
        for case in cases
        for arch in ARCHITECTURES
    ]


def fit(programs, threads, binary):
    """Tell whether a multiprocessor has registers for so many programs at once.

    A thread gets them by eights.
    """
    return programs * threads * -(-binary.registers // 8) * 8 <= 65536


#: Kernel, constants, outputs of one program, most instructions an output (2x2 averages take 300 and
#: more).
BLURS = {
    "stride 1": (blur._gather, {"S": 1}, BLUR_ELEMENTS, 26),
    "stride 2": (blur._gather, {"S": 2}, BLUR_ELEMENTS, 36),
    "backward": (blur._scatter, {}, 4 * BLUR_ELEMENTS, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arch"), everywhere(BLURS, "stride 1"))
def test_blur_costs_few_instructions(case, arch, tmp_path):
    kernel, constants, results, limit = BLURS[case]
    binary = compiled(kernel, arch, blur.OPTIONS, tmp_path, **BLUR_TILE, **constants)
    assert binary.spills == 0
    assert binary.count("LDG") == binary.count(r"LDG.*\.128") > 0
    assert binary.count("STG") == binary.count(r"STG.*\.128") > 0
    assert binary.count(r"^\s*/") * 32 * blur.OPTIONS["num_warps"] / results <= limit


REDUCE = {"TWICE": False, "ADD": False, "KEEP": False, "RELU": True, "HALVED": False}
SUM = REDUCE | {"TWICE": True, "ADD": True}
EACH, FEW = (batch_norm.OPTIONS, 0), (batch_norm.REDUCE_OPTIONS, batch_norm.RESIDENT_REDUCE)
FEWER = batch_norm.LARGE_REDUCE_OPTIONS, batch_norm.RESIDENT_LARGE_REDUCE

#: Kernel, constants, most instructions an element, options, and how many programs must fit on a
#: multiprocessor at once.
BATCH_NORMS = {
    "statistics": (
        batch_norm._statistics,
        {},
        8,
        batch_norm.STATISTICS_OPTIONS,
        batch_norm.RESIDENT_STATISTICS,
    ),
    "apply": (batch_norm._apply, {"ADD": False, "KEEP": False, "RELU": True}, 12, *EACH),
    "apply to a sum": (batch_norm._apply, {"ADD": True, "KEEP": False, "RELU": True}, 16, *EACH),
    "apply and drop": (batch_norm._apply, {"ADD": True, "KEEP": True, "RELU": True}, 20, *EACH),
    "reduce": (batch_norm._reduce, REDUCE, 14, *FEW),
    "reduce of a sum": (batch_norm._reduce, SUM, 16, *FEW),
    "reduce of a dropped sum": (batch_norm._reduce, SUM | {"KEEP": True}, 20, *FEWER),
    "reduce of a halved sum": (batch_norm._reduce, SUM | {"HALVED": True}, 41, *FEWER),
    "reduce of a dropped and halved sum": (
        batch_norm._reduce,
        SUM | {"KEEP": True, "HALVED": True},
        43,
        *FEWER,
    ),
    "spread": (batch_norm._spread, {"KEEP": False, "RELU": True}, 24, *EACH),
    "spread and drop": (batch_norm._spread, {"KEEP": True, "RELU": False}, 24, *EACH),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arch"), everywhere(BATCH_NORMS, "reduce of a sum"))
def test_batch_norm_costs_few_instructions_and_registers(case, arch, tmp_path):
    kernel, constants, limit, options, resident = BATCH_NORMS[case]
    rows, threads = batch_norm.ROWS * (2 if case == "statistics" else 1), 32 * options["num_warps"]
    binary = compiled(kernel, arch, options, tmp_path, BM=rows, BC=batch_norm.CHANNELS, **constants)
    elements = rows * batch_norm.CHANNELS / threads
    assert binary.spills <= (14 if resident else 0)  # once a program, outside the loop over rows
    assert binary.count(r"LDG.*\.128") >= 2
    assert binary.count(r"(LDG|STG)\S*\.U16") == 0
    assert (binary.first_loop() if resident else binary.count(r"^\s*/")) / elements <= limit
    assert fit(resident, threads, binary)


#: Kernel, rows, pairs of columns and channels of the input of a tile, constants, rows that its loop
#: takes at once, bits of an access, instructions an element at most, options, programs that must
#: fit on a multiprocessor.
PAIRS = {
    "blurred": (
        blurred._apply,
        blurred.TILE,
        {"S": 1, "ADD": False, "KEEP": False, "RELU": True},
        1,
        128,
        24,
        blurred.OPTIONS,
        8,
    ),
    "halved": (
        blurred._apply,
        blurred.TILE,
        {"S": 2, "ADD": True, "KEEP": True, "RELU": True},
        2,
        128,
        20,
        blurred.OPTIONS,
        8,
    ),
    "stem": (stem._pool, stem.TILE, {}, 2, 128, 43, stem.OPTIONS, 4),
    "stem backward": (
        stem._unpool,
        stem.GRADIENT_TILE,
        {},
        2,
        64,
        54,
        stem.GRADIENT_OPTIONS,
        stem.RESIDENT,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arch"), everywhere(PAIRS, "halved"))
def test_blurs_in_batch_norms_cost_few_instructions_and_registers(case, arch, tmp_path):
    kernel, (height, pairs, channels), constants, rows, bits, limit, options, resident = PAIRS[case]
    binary = compiled(kernel, arch, options, tmp_path, R=height, BP=pairs, BC=channels, **constants)
    threads = 32 * options["num_warps"]
    assert binary.spills == 0
    assert binary.count(rf"LDG\S*\.{bits}") >= 5
    assert binary.count(rf"STG\S*\.{bits}") > 0
    assert binary.count(r"(LDG|STG)\S*\.U16") == 0
    assert binary.inner_loop() * threads / (rows * 2 * pairs * channels) <= limit
    assert fit(resident, threads, binary)

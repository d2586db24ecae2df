"""Kernels compiled for GPUs that need not be present: no spills, 16-byte loads and stores, few instructions."""

import pytest

pytest.importorskip("triton")

from resnet_recipes.ops.kernels import augment, batch_norm, blur, blurred, crops, cross_entropy, images, stem
from tests.ops.cubin import cubin

#: H100 and H200; with -m exhaustive also A100 and B200.
ARCHITECTURES = (90, *(pytest.param(arch, marks=pytest.mark.exhaustive) for arch in (80, 100)))

BLUR_TILE = {"R": blur.ROWS, "BW": blur.COLUMNS, "BC": blur.CHANNELS}
BATCH_NORM_TILE = {"BM": batch_norm.ROWS, "BC": batch_norm.CHANNELS}
BLUR_ELEMENTS = blur.ROWS * blur.COLUMNS * blur.CHANNELS
FLOATS = dict.fromkeys(("shares", "saved", "keep", "sums", "weight", "bias", "running_mean", "running_var",
                        "targets", "losses", "loss", "norm"), "*fp32")
ARRAYS = dict.fromkeys(("x", "y", "z", "g", "dx", "residual", "gated", "other", "logits",
                        "images"), "*bf16") | FLOATS
ARGUMENTS = ARRAYS | {"arrivals": "*i32", "tracked": "*i64", "momentum": "fp32", "eps": "fp32",
                      "divisor": "fp32", "share": "fp32", "pixels": "*u8", "lines": "*i32",
                      "drawn": "*fp32", "tables": "*u8", "changed": "*u8",
                      "winner": "*u8", "cuts": "*i64", "crops": "*u8"}


def compiled(kernel, arch, options, folder, **constants):
    """Compile a kernel for bfloat16 activations."""
    types = {name: kind for name, kind in ARGUMENTS.items() if name in kernel.arg_names}
    return cubin(kernel, arch, types, ("c",) if "c" in kernel.arg_names else (), options, folder, **constants)


#: Kernel, constants, outputs of one program, most instructions an output (2x2 averages take 300 and more).
BLURS = {
    "stride 1": (blur._gather, {"S": 1}, BLUR_ELEMENTS, 26),
    "stride 2": (blur._gather, {"S": 2}, BLUR_ELEMENTS, 36),
    "backward": (blur._scatter, {}, 4 * BLUR_ELEMENTS, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", BLURS)
def test_blur_costs_few_instructions(case, arch, tmp_path):
    kernel, constants, results, limit = BLURS[case]
    binary = compiled(kernel, arch, blur.OPTIONS, tmp_path, **BLUR_TILE, **constants)
    assert not binary.spills
    assert binary.count("LDG") == binary.count(r"LDG.*\.128") > 0
    assert binary.count("STG") == binary.count(r"STG.*\.128") > 0
    assert binary.count(r"^\s*/") * 32 * blur.OPTIONS["num_warps"] / results <= limit


#: Kernel, constants, most instructions an element, and how many programs must fit on a multiprocessor at once.
BATCH_NORMS = {
    "statistics": (batch_norm._statistics, {}, 8, batch_norm.RESIDENT_STATISTICS),
    "apply": (batch_norm._apply, {"ADD": False, "KEEP": False, "RELU": True}, 12, 0),
    "apply to a sum": (batch_norm._apply, {"ADD": True, "KEEP": False, "RELU": True}, 16, 0),
    "apply and drop": (batch_norm._apply, {"ADD": True, "KEEP": True, "RELU": True}, 20, 0),
    "reduce": (batch_norm._reduce, {"TWICE": False, "ADD": False, "KEEP": False, "RELU": True, "HALVED": False}, 14,
               batch_norm.RESIDENT_REDUCE),
    "reduce of a sum": (batch_norm._reduce, {"TWICE": True, "ADD": True, "KEEP": True, "RELU": True, "HALVED": False},
                        20, batch_norm.RESIDENT_REDUCE),
    "reduce of a halved sum": (batch_norm._reduce, {"TWICE": True, "ADD": True, "KEEP": True, "RELU": True,
                                                    "HALVED": True}, 42, batch_norm.RESIDENT_HALVED),
    "spread": (batch_norm._spread, {"KEEP": False, "RELU": True}, 24, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", BATCH_NORMS)
def test_batch_norm_costs_few_instructions_and_registers(case, arch, tmp_path):
    kernel, constants, limit, resident = BATCH_NORMS[case]
    binary = compiled(kernel, arch, batch_norm.OPTIONS, tmp_path, **BATCH_NORM_TILE, **constants)
    threads = 32 * batch_norm.OPTIONS["num_warps"]
    elements = batch_norm.ROWS * batch_norm.CHANNELS / threads
    assert not binary.spills
    assert binary.count(r"LDG.*\.128") >= 2
    assert (binary.first_loop() if resident else binary.count(r"^\s*/")) / elements <= limit
    assert resident * threads * binary.registers <= 65536


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("kernel", "binary", "limit"), [
    (cross_entropy._loss, True, 85), (cross_entropy._loss, False, 72), (cross_entropy._gradient, True, 31),
    (cross_entropy._gradient, False, 72),
], ids=str)
def test_cross_entropy_costs_few_instructions(kernel, binary, limit, arch, tmp_path):
    binary_file = compiled(kernel, arch, cross_entropy.OPTIONS, tmp_path, BINARY=binary, BK=cross_entropy.CLASSES)
    assert not binary_file.spills
    assert binary_file.count(r"^\s*/") * 32 * cross_entropy.OPTIONS["num_warps"] / cross_entropy.CLASSES <= limit


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("resize", "mix", "limit"), [(False, False, 42), (False, True, 60), (True, True, 160)])
def test_images_cost_few_instructions(resize, mix, limit, arch, tmp_path):
    binary = compiled(images._make, arch, images.OPTIONS, tmp_path, SOME=True, RESIZE=resize, MIX=mix, BV=images.VALUES)
    assert not binary.spills
    assert binary.count(r"^\s*/") * 32 * images.OPTIONS["num_warps"] / images.VALUES <= limit


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("kernel", "at_once", "limit"), [
    (augment._tabulate, augment.COUNTED, 80), (augment._change, augment.CHANGED, 400)], ids=str)
def test_augmentations_cost_few_instructions(kernel, at_once, limit, arch, tmp_path):
    """The limit covers all operations of a kernel together, though an image runs only one of them."""
    binary = compiled(kernel, arch, augment.OPTIONS, tmp_path, BV=at_once)
    assert not binary.spills
    assert binary.count(r"^\s*/") * 32 * augment.OPTIONS["num_warps"] / at_once <= limit


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_crops_do_not_spill_and_are_short(arch, tmp_path):
    binary = compiled(crops._crop, arch, crops.OPTIONS, tmp_path, BV=crops.PIXELS)
    assert not binary.spills
    assert binary.count(r"^\s*/") <= 1200


#: Kernel, rows, pairs of columns and channels of the input of a tile, constants, rows that its loop takes at once,
#: instructions an element at most, programs that must fit on a multiprocessor.
PAIRS = {
    "blurred": (blurred._apply, blurred.TILE, {"S": 1, "ADD": False, "KEEP": False, "RELU": True}, 1, 24, 8),
    "halved": (blurred._apply, blurred.TILE, {"S": 2, "ADD": True, "KEEP": True, "RELU": True}, 2, 20, 8),
    "stem": (stem._pool, stem.TILE, {}, 2, 42, 4),
    "stem backward": (stem._unpool, stem.GRADIENT_TILE, {}, 2, 54, stem.RESIDENT),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", PAIRS)
def test_blurs_in_batch_norms_cost_few_instructions_and_registers(case, arch, tmp_path):
    kernel, (height, pairs, channels), constants, rows, limit, resident = PAIRS[case]
    binary = compiled(kernel, arch, stem.OPTIONS, tmp_path, R=height, BP=pairs, BC=channels, **constants)
    threads = 32 * stem.OPTIONS["num_warps"]
    assert not binary.spills
    assert binary.count(r"LDG.*\.128") > 0
    assert binary.inner_loop() * threads / (rows * 2 * pairs * channels) <= limit
    assert resident * threads * binary.registers <= 65536

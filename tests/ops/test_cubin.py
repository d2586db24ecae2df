"""Kernels compiled for GPUs, which need not be present.

They have no spills, 16-byte loads and stores, and few instructions.
"""

from typing import NamedTuple

import pytest

pytest.importorskip("triton")

from resnet_recipes.ops.kernels import batch_norm, blur, maps, max_pool, statistics
from tests.ops.cubin import compile_cubin

#: T4; A100; RTX 3090; L4, L40S and RTX 4090; H100 and H200; B200; RTX 5090.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

ARGUMENTS = (
    dict.fromkeys(("x", "y", "z", "g", "dx", "residual", "gated", "other"), "*bf16")
    | dict.fromkeys(("partial_sums", "moments", "keep", "sums", "weight", "bias"), "*fp32")
    | dict.fromkeys(("running_mean", "running_var"), "*fp32")
    | {"places": "*u8", "counters": "*i32", "tracked": "*i64", "momentum": "fp32", "eps": "fp32"}
)


class KernelCase(NamedTuple):
    kernel: object
    constants: dict[str, int | None]
    options: dict[str, object]
    elements: int  # outputs, or input elements, of one program or one iteration of its loop
    limit: float  # maximum instructions per element
    resident: int = 0  # programs that must fit on a multiprocessor at once


def compile_kernel(case, arch, folder):
    """Compile a kernel for bfloat16 activations, or float16 on a T4, which has no bfloat16."""
    kernel = case.kernel
    types = {name: kind for name, kind in ARGUMENTS.items() if name in kernel.arg_names}
    if arch == 75:
        types = {name: kind.replace("bf16", "fp16") for name, kind in types.items()}
    aligned = ("c",) if "c" in kernel.arg_names else ()
    return compile_cubin(kernel, arch, types, aligned, case.options, folder, **case.constants)


def list_cases(cases, usual):
    """Return each case with each architecture.

    Without `-m exhaustive`, only the usual case on an H200 is compiled.
    """
    return [
        pytest.param(
            case,
            arch,
            id=f"{name}-sm_{arch}",
            marks=[] if (name, arch) == (usual, 90) else [pytest.mark.exhaustive],
        )
        for name, case in cases.items()
        for arch in ARCHITECTURES
    ]


def is_cheap(instructions, case, arch):
    """Return whether a program needs few enough instructions; a T4 may use a quarter more."""
    limit = case.limit * (1.25 if arch == 75 else 1)
    return instructions * 32 * case.options["num_warps"] / case.elements <= limit


def has_enough_registers(case, binary):
    """Return whether the registers suffice for all programs; threads get multiples of eight."""
    threads = 32 * case.options["num_warps"]
    return case.resident * threads * -(-binary.registers // 8) * 8 <= 65536


TILE = {"R": maps.ROWS, "BW": maps.COLUMNS, "BC": maps.CHANNELS}
OUTPUTS = maps.ROWS * maps.COLUMNS * maps.CHANNELS


def _map(kernel, elements, limit, **constants):
    return KernelCase(kernel, TILE | constants, maps.OPTIONS, elements, limit)


MAPS = {
    "blur, stride 1": _map(blur._gather, OUTPUTS, 26, S=1),
    "blur, stride 2": _map(blur._gather, OUTPUTS, 36, S=2),
    "blur backward": _map(blur._scatter, 4 * OUTPUTS, 8),
    "max pool, stride 1": _map(max_pool._pool, OUTPUTS, 60, S=1),
    "max pool, stride 2": _map(max_pool._pool, OUTPUTS, 80, S=2),
    "max pool backward, stride 1": _map(max_pool._unpool, OUTPUTS, 60),
    "max pool backward, stride 2": _map(max_pool._unpool_halves, 4 * OUTPUTS, 20),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arch"), list_cases(MAPS, "max pool backward, stride 1"))
def test_operations_on_maps_cost_few_instructions(case, arch, tmp_path):
    binary = compile_kernel(case, arch, tmp_path)
    assert binary.spills == 0
    for kind in ("LDG", "STG"):  # 16 bytes, or 8 where values have one byte
        assert binary.count(kind) == binary.count(rf"{kind}.*\.(128|64)") > 0
    assert is_cheap(binary.count(r"^\s*/"), case, arch)


ROWS = {"BM": batch_norm.ROWS, "BC": batch_norm.CHANNELS}
ELEMENTS = batch_norm.ROWS * batch_norm.CHANNELS
#: Arguments for a sum, factors, a second gradient, and a stored gradient; None omits them.
NO_SUM, NO_DROP, NO_OTHER, NO_GATED = (
    {name: None} for name in ("residual", "keep", "other", "gated")
)
DROPPED = ROWS | {"RELU": True}
PLAIN = DROPPED | NO_DROP


def _make_case(kernel, constants, limit):
    return KernelCase(kernel, constants, batch_norm.OPTIONS, ELEMENTS, limit)


def _make_reduction_case(
    constants, limit, options=batch_norm.REDUCE_OPTIONS, resident=batch_norm.RESIDENT
):
    return KernelCase(batch_norm._reduce, constants, options, ELEMENTS, limit, resident)


LARGE = batch_norm.LARGE_REDUCE_OPTIONS, batch_norm.RESIDENT_LARGE
BATCH_NORMS = {
    "statistics": KernelCase(
        statistics._reduce_statistics,
        {"BM": statistics.ROWS, "BC": statistics.CHANNELS},
        statistics.OPTIONS,
        statistics.ROWS * statistics.CHANNELS,
        8,
        statistics.RESIDENT,
    ),
    "apply": _make_case(batch_norm._apply, PLAIN | NO_SUM, 12),
    "apply to a sum": _make_case(batch_norm._apply, PLAIN, 16),
    "apply and drop": _make_case(batch_norm._apply, DROPPED, 20),
    "reduce": _make_reduction_case(PLAIN | NO_OTHER | NO_GATED | {"z": None}, 14),
    "reduce of a sum": _make_reduction_case(PLAIN, 16),
    "reduce of a dropped sum": _make_reduction_case(DROPPED, 20, *LARGE),
    "spread": _make_case(batch_norm._compute_input_gradient, PLAIN, 24),
    "spread and drop": _make_case(batch_norm._compute_input_gradient, ROWS | {"RELU": False}, 24),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arch"), list_cases(BATCH_NORMS, "reduce of a sum"))
def test_batch_norm_costs_few_instructions_and_registers(case, arch, tmp_path):
    binary = compile_kernel(case, arch, tmp_path)
    # once per program, outside the loop over rows; the most occur with Triton 3.6
    assert binary.spills <= (22 if case.resident else 0)
    assert binary.count(r"LDG.*\.128") >= 2
    assert binary.count(r"(LDG|STG)\S*\.U16") == 0
    instructions = binary.count_first_loop() if case.resident else binary.count(r"^\s*/")
    assert is_cheap(instructions, case, arch)
    assert has_enough_registers(case, binary)

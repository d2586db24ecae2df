"""Check that the device computes the same results as the CPU, the decisive checks first."""

from collections.abc import Iterator

import operation_checks
import step_checks
import torch
from faults import measure_or_report_fault

CHECKS = {
    "decisive": (operation_checks.iterate_decisive_checks, step_checks.iterate_decisive_checks),
    "dtypes": (operation_checks.iterate_dtype_checks, step_checks.iterate_dtype_checks),
    "methods": (step_checks.iterate_method_checks,),
}


def measure_rows(device: torch.device, quick: bool, group: str) -> Iterator[dict]:
    """Yield a row for each check, with a fault if it failed or differs by more than rounding."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for checks in CHECKS[group]:
        for case, check in checks(device):
            yield from measure_or_report_fault(case, lambda check=check: [check()])

"""Check that the device computes the same results as the CPU, the decisive checks first."""

from collections.abc import Iterator

import check_operations
import check_steps
import torch
from verdict import tried

CHECKS = {
    "decisive": (check_operations.decisive, check_steps.decisive),
    "dtypes": (check_operations.dtypes, check_steps.dtypes),
    "methods": (check_steps.methods,),
}


def rows(device: torch.device, quick: bool, group: str) -> Iterator[dict]:
    """Yield a row for each check, with a fault if it failed or differs by more than rounding."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for checks in CHECKS[group]:
        for case, check in checks(device):
            yield from tried(case, lambda check=check: [check()])

"""What mlperf-logging's own compliance checker says of a log.

Tests that ask it are skipped where it is absent.
"""

import logging
from pathlib import Path

import pytest


def complies(path: Path) -> bool:
    """Return whether a log passes by the rules of the last round with ResNet, with no warning."""
    checker = pytest.importorskip(
        "mlperf_logging.compliance_checker.mlp_compliance", reason="needs mlperf-logging"
    )
    logging.disable()  # what it complains about would go to the root logger
    try:
        asked = checker.make_checker("training", "4.0.0", quiet=False, werror=True)
        return checker.main(str(path), "training_4.0.0/common.yaml", asked)[0]
    finally:
        logging.disable(logging.NOTSET)

"""torchrun's report on its ranks."""

import re
import signal

#: The line of a traceback that names the error.
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

_KILLED = re.compile(r"rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*-(\d+)")


def killed(report: str) -> list[tuple[int, int]]:
    """Return the ranks that a signal killed, with its number; except SIGTERM, which torchrun sends to survivors."""
    found = [(int(rank), int(number)) for rank, number in _KILLED.findall(report)]
    return [(rank, number) for rank, number in found if number != signal.SIGTERM]

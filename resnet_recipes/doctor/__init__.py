"""Check data, decoder, GPU and machine before a run, and suggest fixes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.errors import ExitCode, Fix, Problem, list_advice
from resnet_recipes.base.text import Progress

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_BLOCK_ITEMS = 4096  # items passed to the threads at a time


class Finding(NamedTuple):
    """The result of one check."""

    level: str  # ok | warn: a run can start | fix: a run cannot start
    what: str  # one sentence
    fix: Fix = ""
    paths: tuple[str, ...] = ()  # the first few affected files


def make_finding(problem: Problem) -> Finding:
    """Return a problem that prevents a run as a finding."""
    subject = problem.value if problem.key == "data.root" else problem.key
    return Finding(
        "fix", problem.about(str(subject)), tuple(map(problem.format_fix, problem.advice))
    )


def get_exit_code(findings: Sequence[Finding]) -> int:
    """Return 3 if a run cannot start, else 0."""
    if any(finding.level == "fix" for finding in findings):
        return ExitCode.NOT_READY
    return ExitCode.DONE


def to_json(topic: str, findings: Sequence[Finding]) -> dict:
    """Return findings as plain values, for other programs."""
    return {
        "topic": topic,
        "exit_code": get_exit_code(findings),
        "findings": [
            finding._asdict() | {"fix": "\n".join(list_advice(finding.fix))} for finding in findings
        ],
    }


def run_checks(
    items: Sequence[Item], check: Callable[[Item], Answer], progress: Progress
) -> Iterator[Answer]:
    """Yield the result of a check for each item, in order, using all cores."""
    with ThreadPoolExecutor(count_cores()) as pool:
        for start in range(0, len(items), _BLOCK_ITEMS):
            block = items[start : start + _BLOCK_ITEMS]
            yield from pool.map(check, block)
            progress(start + len(block), len(items))


def list_few(items: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the first five items as text."""
    return tuple(str(item) for item in items[:5])

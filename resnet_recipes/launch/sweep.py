"""Runs one after the other, each started by its own command."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from resnet_recipes.errors import ExitCode
from resnet_recipes.process.rank_process import die_with_parent

#: Exit codes after which the sweep stops too: the user or the scheduler wants the machine.
STOPPED = (ExitCode.PREEMPTED, ExitCode.CANCELLED)


def train_all(root: Path, runs: Mapping[str, Sequence[str]], say: Callable[[str], None]) -> int:
    """Train each run of `root`, given by its name and words, unless it is finished; return the exit code of the sweep.

    A run that fails does not stop the others. A run that was stopped from outside ends the sweep: the same command
    continues it, since each run resumes where it was.
    """
    failed: dict[str, int] = {}
    for number, (name, words) in enumerate(runs.items(), 1):
        head = f"[{number} of {len(runs)}] {name}"
        if (root / name / "summary.json").exists():
            say(f"{head}: already finished")
            continue
        say(f"{head}: {' '.join(words)}")
        code = _trained([sys.executable, "-m", "resnet_recipes", *words, f"run={name}", "--resume", "auto"])
        if code in STOPPED:
            say(f"{head}: stopped; the same command continues the sweep")
            return code
        if code:
            failed[name] = code
            say(f"{head}: failed with exit code {code}")
    say(f"{len(runs) - len(failed)} of {len(runs)} runs are finished in {root}")
    for name, code in failed.items():
        say(f"  failed with exit code {code}: {name}")
    return ExitCode.FAILED if failed else ExitCode.DONE


def _trained(command: Sequence[str]) -> int:
    """Run a command to its end; return its exit code, or that of a stopped run if a signal came meanwhile.

    Ctrl-C reaches the command from the terminal; the other signals are passed on.
    """
    received: list[int] = []
    child = subprocess.Popen(command, preexec_fn=die_with_parent)

    def stop(number: int, _: object) -> None:
        received.append(number)
        if number != signal.SIGINT:
            child.send_signal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        return ExitCode.CANCELLED if signal.SIGINT in received else ExitCode.PREEMPTED
    return code if code >= 0 else 128 - code

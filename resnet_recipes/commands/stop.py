"""`resnet-recipes stop RUN`: save a checkpoint and end a run, as a scheduler does."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from resnet_recipes.base.errors import Command, ExitCode, NotReadyError
from resnet_recipes.base.reading import read_json
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.usage import RUN_HELP, Usage
from resnet_recipes.jobs.lookup import LAST, find_run
from resnet_recipes.report.comparison import read_all
from resnet_recipes.run_folder import EXIT, LOCK, STOP
from resnet_recipes.run_folder.ending import format_resume, read_ending, write_ending
from resnet_recipes.run_folder.lock import find_holder, is_running

USAGE = Usage(
    "resnet-recipes stop RUN",
    "save a checkpoint and stop a run; resume it with --resume",
    "resnet-recipes stop last",
    more=f"{RUN_HELP} Stopping a run of a sweep also stops the sweep, which prints how to resume.",
    positional=(1, 1),
    positional_text="one run",
)


#: The reason that the run and `resnet-recipes runs` print; the signal carries no reason.
_REASON = "`resnet-recipes stop`"


def check(arguments: Arguments) -> tuple[Path, int]:
    """Return the folder of the run and its process. Raises NotReadyError if it is not running."""
    (argument,) = arguments.positional
    try:
        folder = find_run(argument)
        if not is_running(folder):
            (record,) = read_all([folder])
            clause = f"is {record.state} at {record.progress}"
            raise NotReadyError.at(folder, clause, record.resume if record.resumable else ())
    except NotReadyError as error:
        locks = Path().glob(f"*/*/{LOCK}") if argument == LAST else Path(argument).glob(f"*/{LOCK}")
        live = next((str(lock.parent) for lock in locks if is_running(lock.parent)), "")
        fix = Command.of(*USAGE.command, live) if live else error.problems[0].fix
        raise NotReadyError([error.problems[0]._replace(fix=fix)]) from None
    return folder, find_holder(folder)


def run(_: Arguments, folder: Path, process: int) -> int:
    """Send SIGTERM to the process of the run, wait for its end, and record who stopped it."""
    with suppress(OSError):  # a full disk must not prevent the stop
        (folder / STOP).write_text(_REASON)
    if read_json(folder / LOCK, may_be_absent=True).get("is_in_sweep"):
        say("its sweep starts no other run")
    with suppress(ProcessLookupError):  # the run has just ended
        os.kill(process, signal.SIGTERM)
    say(f"process {process} was asked to save a checkpoint and to end ...")
    while is_running(folder):
        time.sleep(0.1)
    with suppress(OSError):  # the run deletes it unless it ended otherwise
        (folder / STOP).unlink()
    ending = read_ending(folder / EXIT)
    if ending and ending.code == ExitCode.PREEMPTED:
        write_ending(folder / EXIT, replace(ending, message=_REASON))
    print(f"stopped\nresume: {format_resume(folder)}")
    return 0

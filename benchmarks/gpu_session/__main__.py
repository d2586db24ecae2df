"""Check and measure one GPU, in a session of 29 minutes.

    python benchmarks/gpu_session --call CALL ... --out FILE [--only PART ...] [--images FOLDER]
        [--device cpu] [--quick]

`correctness` checks that results are correct, `decide` whether our steps are faster than a good
loop, and `profile` where the time of a step goes. `peers` and `compiled` compare with more peers,
and `files` adds the reading of image files. `accuracy` measures accuracy against seconds on
uploaded images; its runs are in `runs/`, under the name of FILE. A call is a list of parts. Each
part is a process with a time limit, so that a crash in one adds a row and the call continues. Every
row is shown and appended to FILE, as a line of JSON, when it is measured. Exit code 1 if any row
has a fault. `--quick` runs everything on tiny inputs to test the session; its numbers are
meaningless, and it may take five times as long.
"""

import argparse
import sys
import time
from pathlib import Path

from calls import CALLS, COMMAND_SECONDS, QUICK_TIME_FACTOR
from part import run_part
from ratios import compute_ratios
from row_log import RowLog


def main() -> int:
    """Run the parts of some calls."""
    arguments = parse_arguments()
    faults = 0
    for name in arguments.call:
        log = RowLog(arguments.out, name)
        run_call(name, arguments, log)
        print(f"\n{name}: {len(log.measured)} rows, {log.faults} with a fault, in {arguments.out}")
        faults += log.faults
    return int(faults > 0)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--call", choices=CALLS, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON lines")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="some parts of it")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="tiny inputs, to test the session")
    parser.add_argument("--images", type=Path, help="for accuracy: a folder with train/ and val/")
    arguments = parser.parse_args()
    if "accuracy" in arguments.call and not arguments.images:
        parser.error("--call accuracy needs --images FOLDER, with train/ and val/ by class")
    part_names = [part.name for call in arguments.call for part in CALLS[call].parts]
    if unknown := set(arguments.only) - set(part_names):
        parser.error(f"--only: no part is called {', '.join(unknown)}; choose from {part_names}")
    if (seconds := sum(CALLS[call].seconds for call in arguments.call)) > COMMAND_SECONDS:
        parser.error(
            f"these calls take {seconds} s, and a command at most {COMMAND_SECONDS} s: omit one"
        )
    return arguments


def run_call(name: str, arguments: argparse.Namespace, log: RowLog) -> None:
    """Run the parts of a call that fit into the remaining time."""
    call = CALLS[name]
    factor = QUICK_TIME_FACTOR if arguments.quick else 1
    deadline = time.monotonic() + factor * call.seconds
    print(f"{name}: at most {factor * call.seconds} s")
    for part in call.parts:
        if arguments.only and part.name not in arguments.only:
            continue
        if part.module == "accuracy":
            part = part._replace(arguments=(str(arguments.images), f"runs/{arguments.out.stem}"))
        seconds = min(factor * part.seconds, deadline - time.monotonic())
        for row in run_part(part._replace(seconds=seconds), arguments.device, arguments.quick):
            log.add(part.name, row)
    for row in compute_ratios(log.measured):
        log.add("ratios", row)


if __name__ == "__main__":
    sys.exit(main())

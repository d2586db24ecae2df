"""Check and measure one GPU, in calls of at most nine minutes each.

    python benchmarks/gpu_session --call CALL --out FILE [--device cpu] [--quick] [--only PART ...]

`contact` shows that results are right, `profile` where a step's time goes, `steps` and `compiled`
compare our steps with those of peers, `whole` adds decoding, `learn` measures accuracy against
seconds on images that were brought along. A call is a list of parts; each part is a process with a
limit, so that a fault in one is a row, not the end. Every row is shown and appended to FILE, as a
line of JSON, when it is measured. Exit code 1 if any row has a fault. `--quick` runs everything on
tiny inputs, to test the session; its numbers mean nothing.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from calls import CALLS, Part
from part import run
from ratios import ratios
from rows import Rows


def main() -> int:
    """Run the parts of one call."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--call", choices=CALLS, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON lines")
    parser.add_argument("--only", nargs="+", metavar="PART", help="some parts of the call")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="tiny inputs, to test the session")
    parser.add_argument("--images", type=Path, help="for learn: a folder with train/ and val/")
    args = parser.parse_args()
    if args.call == "learn" and not args.images:
        parser.error("--call learn needs --images FOLDER, with train/ and val/ by class")
    parts = [part for part in CALLS[args.call] if not args.only or part.name in args.only]
    if not parts:
        names = ", ".join(part.name for part in CALLS[args.call])
        parser.error(f"--only: {args.call} has the parts {names}")
    with Rows(args.out, args.call) as rows:
        print(plan_of(args.call, parts))
        for part in parts:
            if part.module == "learn":
                part = part._replace(words=(str(args.images), f"{args.out}.runs"))
            for row in run(part, args.device, args.quick):
                rows.add(part.name, row)
        for row in ratios(rows.measured):
            rows.add("ratios", row)
    print(f"\n{len(rows.measured)} rows, {rows.faults} with a fault; appended to {args.out}")
    return int(rows.faults > 0)


def plan_of(call: str, parts: list[Part]) -> str:
    """Return the seconds that a call may take, part by part."""
    return "\n".join(lines_of(call, parts))


def lines_of(call: str, parts: list[Part]) -> Iterator[str]:
    """Yield a line for the call and for each of its parts."""
    yield f"{call}: at most {sum(part.seconds for part in parts)} s"
    yield from (f"  {part.name:<34}{part.seconds:>5} s" for part in parts)


if __name__ == "__main__":
    sys.exit(main())

"""Check and measure one GPU in at most 580 seconds: are the results right, how fast are we, how fast are our peers?

    python benchmarks/gpu_session [--json FILE] [--only SECTION,...] [--device cpu] [--quick]

Each section is a process with its own time limit; if it is stopped or fails, what it has measured
so far is kept, and written to FILE. Measurements are printed next to predictions from datasheets.
`--quick` runs everything on tiny inputs, even on a CPU, to test the script; its numbers mean
nothing. Exit code 1 if a section failed or a check found a fault.

If nothing can be installed on the machine, bring the missing packages along:
    pip install --target carried --no-deps hydra-core omegaconf antlr4-python3-runtime==4.9.3
    simplejpeg PYTHONPATH=carried:. python benchmarks/gpu_session
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 580  # seconds, all sections together

#: Sections in order, with the seconds that each may take.
SECTIONS = {
    "ceilings": 30,
    "correct": 100,
    "launches": 50,
    "kernels": 60,
    "steps": 210,
    "tuning": 40,
    "compiling": 80,
    "whole": 80,
}


def main() -> int:
    """Run the sections, or be one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.section:
        return one(args)
    rows, began = [], time.monotonic()
    wanted = [name for name in SECTIONS if name in args.only.split(",")]
    for name in ["machine", *wanted]:
        left = LIMIT - (time.monotonic() - began)
        rows += (
            run(name, min(SECTIONS.get(name, 30), left), args)
            if name != "machine"
            else [machine(args)]
        )
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row.get("fault") for row in rows))


def one(args: argparse.Namespace) -> int:
    """Print what a section yields, one JSON object per line."""
    import torch

    device = torch.device("cuda", 0) if args.device == "cuda" else torch.device(args.device)
    # threads would only wait for each other
    torch.set_num_threads(1 if args.quick else torch.get_num_threads())
    for row in importlib.import_module(args.section).rows(device, args.quick):
        print(json.dumps(row), flush=True)
    return 0


def run(section: str, limit: float, args: argparse.Namespace) -> list[dict]:
    """Run a section in its own process; return its rows, with a fault if it failed or had to be stopped."""
    command = [sys.executable, __file__, "--section", section, "--device", args.device]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    began, rows = time.monotonic(), []
    print(f"\n{section}", flush=True)
    process = subprocess.Popen(
        command + ["--quick"] * args.quick,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    complaints: list[str] = []
    reader = threading.Thread(target=lambda: complaints.extend(process.stderr), daemon=True)
    reader.start()
    timer = threading.Timer(max(limit, 1), lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    for line in process.stdout:
        if line.startswith("{"):
            rows.append({"section": section} | json.loads(line))
            tell(rows[-1])
        else:
            print(f"  {line.rstrip()}", flush=True)
    code = process.wait()
    timer.cancel()
    reader.join(timeout=5)
    took = time.monotonic() - began
    if code:
        last = next((line.strip() for line in reversed(complaints) if line.strip()), "no message")
        why = f"stopped after {took:.0f} s" if took >= limit else f"ended with {code}: {last}"
        rows.append(
            {
                "section": section,
                "case": "section",
                "fault": why,
                "log": "".join(complaints)[-4000:],
            }
        )
        tell(rows[-1])
    rows.append({"section": section, "case": "seconds", "value": round(took, 1), "unit": "s"})
    return rows


def tell(row: dict) -> None:
    """Print a row: case, measurement, unit, and what was predicted."""
    if row.get("fault"):
        print(f"  FAULT {row['case']}: {row['fault']}", flush=True)
        return
    value = row["value"]
    shown = f"{value:>12,.4g}" if isinstance(value, float) and abs(value) < 1e4 else f"{value:>12,}"
    if isinstance(value, float) and abs(value) >= 1e4:
        shown = f"{value:>12,.0f}"
    predicted = row.get("predicted")
    more = (
        f"  predicted {predicted:,.4g}, reached {value / predicted:.2f} of it" if predicted else ""
    )
    note = f"  ({row['note']})" if row.get("note") else ""
    print(f"  {row['case']:<46}{shown} {row['unit']}{more}{note}", flush=True)


def machine(args: argparse.Namespace) -> dict:
    """Return the device, the versions and the command that the numbers belong to."""
    import torch

    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    versions = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "device": name,
        "quick": args.quick,
        "command": " ".join(sys.argv),
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }
    print("  ".join(f"{key} {value}" for key, value in versions.items()), flush=True)
    return {"section": "machine", "case": name} | versions


if __name__ == "__main__":
    sys.exit(main())

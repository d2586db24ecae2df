"""Train on two "nodes", kill one and restart it: the run must end with the weights of an undisturbed run.

    python benchmarks/two_nodes.py [--json FILE]

Both are launchers on this machine with one rank each, which meet at a port of its loopback
interface. The recipe is that of kill_campaign.py. The launcher that serves the rendezvous is not
killed. torchrun takes half a minute to give up on a node.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_campaign import RECIPE, STEPS, digest, untouched

from resnet_recipes.process import watchdog
from resnet_recipes.training.checkpoint import Checkpoints

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; from resnet_recipes.cli import train; sys.exit(train())",
]


def start(root: Path, port: int) -> subprocess.Popen[bytes]:
    """Start or restart the launcher of one node; the command is the same on every node."""
    words = [
        "--resume",
        "auto",
        *RECIPE,
        f"run.root={root / 'runs'}",
        "run.name=nodes",
        "gpus=1",
        "launch.nodes=2",
        f"launch.rdzv=127.0.0.1:{port}",
        "launch.max_restarts=3",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with (root / "output.txt").open("a") as output:
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=root, stdout=output, stderr=output, env=environment
        )


def is_open(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def steps(folder: Path) -> list[int]:
    """Return the steps that each rank has done."""
    return [beat.step for beat in watchdog.beats(folder)]


def main() -> int:
    """Run the test once and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        root, folder = Path(name), Path(name) / "runs" / "nodes"
        truth = untouched(root, 2)[STEPS]
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        first = start(root, port)
        while not is_open(port):
            time.sleep(0.2)
        second = start(root, port)
        while len(steps(folder)) < 2 or min(steps(folder)) < 8:
            time.sleep(0.02)
        second.send_signal(signal.SIGKILL)
        second.wait()
        killed_at, began = min(steps(folder)), time.monotonic()
        second = start(root, port)
        codes = [node.wait(600) for node in (first, second)]
        step, state = Checkpoints(folder / "checkpoints", 2, print).newest()
        same = (step, digest(state)) == (STEPS, truth)
        print(
            f"killed after step {killed_at} of {STEPS}, restarted, ended "
            f"{time.monotonic() - began:.0f} s later with "
            f"exit codes {codes} and "
            f"{'the weights of the undisturbed run' if same else 'DIFFERENT WEIGHTS'}"
        )
        if arguments.json:
            row = {"killed_at": killed_at, "exit_codes": codes, "same_weights": same}
            arguments.json.write_text(json.dumps(row) + "\n")
        return 0 if same and codes == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())

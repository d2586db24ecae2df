"""A simulated rank without torch: `python -m stand_in RUN`.

RUN/behavior contains actions such as kill@1, for rank 1.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from resnet_recipes.base.errors import ExitCode, NotReadyError, Problem, TrainingError
from resnet_recipes.jobs.ranks.rank import LaunchFacts, RankProcess, run_rank
from resnet_recipes.run_folder import LAUNCH
from resnet_recipes.run_folder.lock import HeldFolder

STEPS = 2000


def run_task(process: RankProcess) -> int:
    behaviors = dict(
        reversed(word.split("@")) for word in (process.folder / "behavior").read_text().split()
    )
    behavior = behaviors.get(str(process.rank), "")
    print("console of", process.rank, file=process.console)
    print("output of", process.rank)
    print("log of", process.rank, file=sys.stderr)
    for step in range({"finish": 20, "fail-once": 21}.get(behavior, STEPS)):
        time.sleep(0.002)
        process.heartbeat.beat(step + 1, "train")
        if step == 20:
            misbehave(behavior, process)
        if process.interruption.is_requested():
            if behavior in ("finish-at-signal", "preempted-at-signal"):
                return 0 if behavior == "finish-at-signal" else ExitCode.PREEMPTED
            (process.folder / f"saved{process.rank}").touch()
            return process.interruption.exit_code
    return 0


def misbehave(behavior: str, process: RankProcess) -> None:
    match behavior:
        case "wrong":
            raise TrainingError("image file is truncated: /data/train/igloo/n03590841_7.JPEG")
        case "bug":
            raise ZeroDivisionError("division by zero")
        case "not-ready":
            raise NotReadyError([Problem("data.root", "/data", "is gone")])
        case "not-ready-last":
            while not list(process.folder.glob("endings/*")):
                time.sleep(0.01)
            misbehave("not-ready", process)
        case "peer":
            exec(
                "raise RuntimeError('[gloo/pair.cc:534] Connection closed by peer')",
                {"__name__": "torch.distributed.distributed_c10d"},
            )
        case "kill" | "segv" | "bus":
            os.kill(
                os.getpid(),
                {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "bus": signal.SIGBUS}[behavior],
            )
        case "exit":
            sys.exit(5)
        case "stuck":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            (process.folder / "stuck").touch()
            time.sleep(60)
        case "leave-a-child":
            child = process.folder / "child"
            child.touch()
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(child)])
            raise TrainingError("with a child left behind")
        case "fail-once" if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise TrainingError("the first time")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    is_launched = (folder / LAUNCH).exists()  # started by our launcher
    facts = LaunchFacts.read(folder) if is_launched else LaunchFacts(time.monotonic())
    run_rank(HeldFolder(folder), run_task, facts)

"""Kill a run at random times, resume it, and compare its checkpoints with an uninterrupted run.

    python benchmarks/kill_campaign.py --kills 44 --json campaign.json

The run is Hot without RandAugment, ResNet-18 on synthetic images, on two CPU ranks. A fault counts
as survived if all processes are gone within 30 seconds, the exit code is the documented one, the
newest checkpoint is bit-identical to the uninterrupted run at that step, and no more steps are lost
than `count_losable_steps` allows: two checkpoint intervals for most faults, because the newest
checkpoint may not be on disk yet. Takes about 15 seconds per kill on two cores.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.jobs.ranks.heartbeat import RankMonitor
from resnet_recipes.network.weights import compute_digest
from resnet_recipes.training.checkpoint import Checkpoints

STEPS = 24
CHECKPOINT_STEPS = 3  # steps between checkpoints

RECIPE = f"""
recipe=hot data.backend=synthetic data.train_size=32 data.eval_resize=32 data.eval_size=32
model.name=resnet18 model.num_classes=auto batch.global_size=4 batch.bn_size=2 batch.eval_size=50
max_duration={STEPS}ba ssr=1 schedule.warmup=2ba checkpoint.interval={CHECKPOINT_STEPS}ba
evaluation.interval=12ba log.interval=1ba launch.device=cpu optimizer.lr=0.01 methods.sam.interval=3
methods.ema.half_life=4ba methods.ema.update_interval=2ba gpus=2
""".split()


class Outcome(NamedTuple):
    """The outcome of one fault."""

    fault: str
    done: int  # steps that the ranks had finished
    saved: int  # step of the newest checkpoint afterwards; 0 without one
    seconds: float  # seconds from the fault until all processes are gone
    exit_code: int
    problem: str  # problem after the fault; empty: the run survived


#: Function that injects a fault into a running process.
Fault = Callable[["CampaignRun", random.Random], None]


class CampaignRun:
    """A run that can be started, resumed and observed."""

    def __init__(self, root: Path, name: str):
        self.root = root
        self.folder = root / "runs" / name

    def start(self, *changes: str) -> None:
        """Start or resume the run with the same command."""
        location = f"run.root={self.root / 'runs'}", f"run.name={self.folder.name}"
        settings = [*RECIPE, *location, *changes]
        self.monitor = RankMonitor(self.folder)
        with (self.root / "output.txt").open("a") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "resnet_recipes", "--resume", "auto", *settings],
                cwd=self.root,
                stdout=output,
                stderr=output,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    def train_for_a_while(self, rng: random.Random) -> bool:
        """Wait a random time, usually until some steps later; return whether the run is alive."""
        if rng.random() < 0.1:
            time.sleep(rng.uniform(0.5, 5))
        else:
            target = min(
                count_finished_steps(heartbeat.read_beats(self.folder)) + rng.randint(1, 12), STEPS
            )
            self.wait_for(lambda: count_finished_steps(self.monitor.read_beats()) >= target)
            time.sleep(rng.uniform(0, 0.5))
        return self.process.poll() is None

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds, or the run has ended."""
        while self.process.poll() is None and not holds():
            time.sleep(0.01)

    def list_processes(self) -> list[int]:
        """Return all processes whose command line contains the run folder."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in arguments or f"run.name={self.folder.name}\0" in arguments:
                pids.append(int(path.parent.name))
        return pids


def count_finished_steps(beats: list[heartbeat.Beat]) -> int:
    """Return the steps that the fastest rank has finished."""
    return max((beat.step for beat in beats), default=0)


def make_launcher_signal(number: int) -> Fault:
    """Return a fault that sends a signal to the process that the user started."""
    return lambda run, rng: os.kill(run.process.pid, number)


def make_rank_signal(number: int) -> Fault:
    """Return a fault that sends a signal to a random rank.

    Before ranks exist, the launcher gets it.
    """
    return lambda run, rng: os.kill(
        rng.choice([beat.pid for beat in run.monitor.read_beats()] or [run.process.pid]),
        number,
    )


def fill_disk(run: CampaignRun, rng: random.Random) -> None:
    """Limit the files of all ranks to 1 MB from now on, for two saves; then ask the run to stop."""
    for beat in run.monitor.read_beats():
        resource.prlimit(beat.pid, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    time.sleep(2)
    os.kill(run.process.pid, signal.SIGTERM)


def damage_checkpoint(run: CampaignRun, rng: random.Random) -> None:
    """Kill the run at its second checkpoint, and damage the newest: flip a bit or truncate it."""
    folder = run.folder / "checkpoints"
    run.wait_for(lambda: len(list(folder.glob("*.json"))) > 1)
    os.kill(run.process.pid, signal.SIGKILL)
    newest = max(folder.glob("*.pt"))
    content = bytearray(newest.read_bytes())
    offset = rng.randrange(len(content))
    content[offset] ^= 1
    newest.write_bytes(content if rng.random() < 0.5 else content[:offset])


#: Every fault, with the exit codes that it may lead to. During startup, signals have their usual
#: effect, and the launcher is hit instead of a rank.
FAULTS: dict[str, tuple[Fault, set[int]]] = {
    "SIGKILL of a rank": (make_rank_signal(signal.SIGKILL), {1, -9}),
    "SIGKILL of the launcher": (make_launcher_signal(signal.SIGKILL), {-9}),
    "SIGTERM": (make_launcher_signal(signal.SIGTERM), {75, -15}),
    "SIGTERM to one rank": (make_rank_signal(signal.SIGTERM), {75, -15}),
    "Ctrl-C": (make_launcher_signal(signal.SIGINT), {130, 1}),
    "damaged checkpoint": (damage_checkpoint, {-9}),
    "disk full, SIGTERM": (fill_disk, {1, 75, -15}),
}


def compute_state_digest(state: dict[str, Any]) -> str:
    """Return a digest of every tensor in the model, the optimizer and the methods, and its key."""

    def iterate_tensors(value: Any, key: str) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            yield key, value
        elif isinstance(value, dict):
            for name, item in value.items():
                yield from iterate_tensors(item, f"{key}/{name}")

    parts = {part: state[part] for part in ("model", "optimizer", "methods")}
    return compute_digest(dict(iterate_tensors(parts, "")), "")


def train_uninterrupted(root: Path) -> dict[int, str]:
    """Train without faults; return the digest of every checkpoint by step. Exits if this fails."""
    run = CampaignRun(root, "uninterrupted")
    run.start("checkpoint.keep=1000", "checkpoint.interval=1ba")
    if run.process.wait() != 0:
        raise SystemExit((root / "output.txt").read_text())
    checkpoints = Checkpoints(run.folder / "checkpoints")
    saved = [checkpoints.load_newest(step) for step in range(1, STEPS + 1)]
    digests = {step: compute_state_digest(state) for step, state in saved}
    shutil.rmtree(run.folder)
    return digests


def inject_fault(
    run: CampaignRun, fault: str, rng: random.Random, expected_digests: dict[int, str]
) -> Outcome:
    """Inject one fault into a run and check what remains."""
    apply_fault, codes = FAULTS[fault]
    done = count_finished_steps(run.monitor.read_beats())
    start = time.monotonic()
    try:
        apply_fault(run, rng)
    except (ProcessLookupError, FileNotFoundError):
        codes = codes | {0}  # the run has just ended
    code = run.process.wait(600)
    while (left := run.list_processes()) and time.monotonic() - start < 150:
        time.sleep(0.05)
    seconds = time.monotonic() - start
    saved = Checkpoints(run.folder / "checkpoints").load_newest()
    step = saved.step if saved else 0
    problem = ""
    if left:
        problem = f"{len(left)} processes are still running"
    elif seconds > 30:
        problem = "took longer than 30 seconds"
    elif code not in codes | ({0} if step == STEPS else set()):
        problem = f"exit code {code}"
    elif saved and compute_state_digest(saved.state) != expected_digests[step]:
        problem = f"step {step} differs from the uninterrupted run"
    elif done - step > count_losable_steps(fault, code, done):
        problem = f"{done - step} steps were lost"
    return Outcome(fault, done, step, seconds, code, problem)


def count_losable_steps(fault: str, code: int, done: int) -> int:
    """Return how many of the finished steps may be missing after a fault."""
    if code in (75, 130):
        return (
            0 if done > 1 else 1
        )  # the run saved when it was asked to stop, unless it had barely started
    if fault == "disk full, SIGTERM":
        return STEPS  # no later save was possible
    return (3 if fault == "damaged checkpoint" else 2) * CHECKPOINT_STEPS


def run_campaign(root: Path, kills: int, seed: int) -> list[Outcome]:
    """Inject the faults one after the other; start a new run when one has finished."""
    rng = random.Random(seed)
    expected_digests = train_uninterrupted(root)
    outcomes = []
    names = count()
    run = CampaignRun(root, f"killed{next(names)}")
    while len(outcomes) < kills:
        run.start()
        if run.train_for_a_while(rng):
            outcomes.append(
                inject_fault(run, list(FAULTS)[len(outcomes) % len(FAULTS)], rng, expected_digests)
            )
            print_outcome(len(outcomes), outcomes[-1])
        if (run.folder / "summary.json").exists():
            outcomes += check_finished_run(run, expected_digests)
            shutil.rmtree(run.folder)
            run = CampaignRun(root, f"killed{next(names)}")
    run.start()
    return outcomes + check_finished_run(run, expected_digests)


def check_finished_run(run: CampaignRun, expected_digests: dict[int, str]) -> list[Outcome]:
    """Report a failure if a resumed run's final weights differ from the uninterrupted run."""
    code = run.process.wait(600)
    step, state = Checkpoints(run.folder / "checkpoints").load_newest()
    if (step, compute_state_digest(state)) == (STEPS, expected_digests[STEPS]):
        return []
    problem = "the final weights differ from those of the uninterrupted run"
    return [Outcome("resumed to the end", STEPS, step, 0.0, code, problem)]


def print_outcome(number: int, outcome: Outcome) -> None:
    """Print the row of an outcome."""
    print(
        f"{number:>4}  {outcome.fault:<24}{outcome.done:>5}{outcome.saved:>7}"
        f"{outcome.seconds:>8.1f} s{outcome.exit_code:>6}   {outcome.problem or 'survived'}",
        flush=True,
    )


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=44)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    # Shells start background jobs with SIGINT ignored, and the runs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"  no  {'fault':<24}{'done':>5}{'saved':>7}{'gone':>10}{'code':>6}")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_campaign(Path(folder), arguments.kills, arguments.seed)
    failed = [outcome for outcome in outcomes if outcome.problem]
    survived = len(outcomes) - len(failed)
    print(f"{survived} of {len(outcomes)} survived (seed {arguments.seed})")
    if arguments.json:
        facts = {"seed": arguments.seed, "torch": torch.__version__}
        facts["outcomes"] = [outcome._asdict() for outcome in outcomes]
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

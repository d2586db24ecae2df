"""Set up Slurm on this machine, and check that jobs and arrays lose nothing.

They are requeued and run out of time. apt-get install slurm-wlm munge python tools/slurm_check.py
[--steps 200] [--only array]

Every run must end with exactly the weights of an undisturbed one: a job that is requeued by hand
and runs out of time, a run with one srun task per rank, and the tasks of an array, one of which is
requeued by hand.

Needs root on Debian or Ubuntu without another Slurm. Takes about ten minutes on two cores.
Everything is in a temporary folder, which is kept if something fails.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from resnet_recipes.jobs import watchdog
from resnet_recipes.run_folder.ending import read

RECIPE = [
    "data.backend=synthetic",
    "data.train_size=32",
    "data.eval_resize=32",
    "data.eval_size=32",
    "bs=16",
    "batch.bn_size=8",
    "lr=0.05",
    "model.name=resnet18",
    "schedule.warmup=1ba",
    "ssr=1",
    "launch.device=cpu",
    "checkpoint.interval=25ba",
    "evaluation.interval=1dur",
]

ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")

CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
{node}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Slurm's daemons, and the folder in which they live."""

    def __init__(self, folder: Path):
        self.folder, self._daemons = folder, []
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def __enter__(self) -> "Cluster":
        key, host = self.folder / "munge.key", socket.gethostname().partition(".")[0]
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        node = subprocess.run(
            ["slurmd", "-C"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
        node += " NodeAddr=127.0.0.1 State=UNKNOWN"
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=host, folder=self.folder, node=node)
        )
        names = ("socket", "pid-file", "log-file", "seed-file")
        munge = [f"--{name}={self.folder / 'munge'}.{name.partition('-')[0]}" for name in names]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *munge)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        states = ["sinfo", "-h", "-o", "%T"]
        self._wait(
            "an idle node",
            lambda: "idle" in subprocess.run(states, capture_output=True, text=True).stdout,
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["scancel", "--user=root"], check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)

    def submit(self, script: Path) -> str:
        """Submit a job and return its id."""
        submitted = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        return submitted.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm knows about a job."""
        shown = subprocess.run(
            ["scontrol", "show", "job", "-o", number], capture_output=True, text=True, check=True
        ).stdout
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("a") as log:
            self._daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
        time.sleep(2)

    def _wait(self, what: str, holds: object, limit: float = 900) -> None:
        deadline = time.monotonic() + limit
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"gave up after waiting {limit:.0f} s for {what}: see {self.folder}"
                )
            time.sleep(1)


def steps(run: Path) -> int:
    """Return the steps that the slowest rank of a run has done."""
    return min((beat.step for beat in watchdog.beats(run)), default=0)


def requeued(cluster: Cluster, words: list[str]) -> Path:
    """Run a job that is requeued once by hand, and by its time limit as often as needed.

    Return its run.
    """
    text = subprocess.run(
        ["resnet-recipes", "slurm", *words, "gpus=2", "--time", "5"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    script = cluster.folder / "job.sh"
    script.write_text(text)
    number = cluster.submit(script)
    run = cluster.folder / "runs" / f"mild-{number}"
    restarts, state, by_hand = 0, "PENDING", False
    while state not in ENDED:
        job = cluster.job(number)
        state = job["JobState"]
        if not by_hand and state == "RUNNING" and steps(run) > 40:
            subprocess.run(["scontrol", "requeue", number], check=True)
            print(f"job {number}: requeued by hand after step {steps(run)}")
            by_hand = True
        if int(job["Restarts"]) > restarts:
            restarts = int(job["Restarts"])
            print(f"job {number}: restart {restarts}, after step {steps(run)}")
        time.sleep(1)
    print(f"job {number}: {state} after {restarts} restarts")
    if state != "COMPLETED" or restarts < 2:
        raise SystemExit(
            "the job did not complete, or in fewer than 2 restarts (more --steps?): see "
            f"{cluster.folder}"
        )
    return run


def one_task_per_rank(cluster: Cluster, words: list[str]) -> Path:
    """Train with two srun tasks, each of which is a rank; return the run."""
    subprocess.run(
        [
            "srun",
            "--ntasks=2",
            "--time=20",
            "resnet-train",
            f"recipe={words[0]}",
            *words[1:],
            "run=tasks",
        ],
        cwd=cluster.folder,
        check=True,
    )
    return cluster.folder / "runs" / "tasks"


def swept(cluster: Cluster, words: list[str]) -> list[Path]:
    """Train two seeds as an array, requeue the task with the array's id, and return the runs."""
    text = subprocess.run(
        ["resnet-recipes", "slurm", "-m", *words, "seed=1,2", "gpus=1", "--time", "10"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    script = cluster.folder / "sweep.sh"
    script.write_text(text)
    runs = [cluster.folder / "runs" / name for name in re.findall(r"run\.name=([^ )]+)\)", text)]
    number = cluster.submit(script)
    tasks = [f"{number}_{task}" for task in range(len(runs))]
    by_hand = ""
    while not all(cluster.job(task)["JobState"] in ENDED for task in tasks):
        for task, run in zip(tasks, runs, strict=True):
            job = cluster.job(task)
            if (
                not by_hand
                and job["JobId"] == number
                and job["JobState"] == "RUNNING"
                and steps(run) > 20
            ):
                by_hand = task
                subprocess.run(["scontrol", "requeue", task], check=True)
                print(f"task {task}: requeued by hand after step {steps(run)}")
        time.sleep(1)
    jobs = {task: cluster.job(task) for task in tasks}
    for task, job in jobs.items():
        print(f"task {task}: {job['JobState']} after {job['Restarts']} restarts")
    if {job["JobState"] for job in jobs.values()} != {"COMPLETED"} or jobs[by_hand][
        "Restarts"
    ] != "1":
        raise SystemExit(f"the array did not end as expected: see {cluster.folder}")
    return runs


def compared_jobs(cluster: Cluster, words: list[str]) -> list[tuple[Path, Path]]:
    """Return pairs: an undisturbed run, and each of those that Slurm started."""
    train = ["resnet-train", f"recipe={words[0]}", *words[1:], "gpus=2", "run=alone"]
    subprocess.run(train, cwd=cluster.folder, check=True, stdout=subprocess.DEVNULL)
    alone = cluster.folder / "runs" / "alone"
    print(f"undisturbed: {steps(alone)} steps")
    return [(alone, run) for run in (one_task_per_rank(cluster, words), requeued(cluster, words))]


def compared_tasks(cluster: Cluster, words: list[str]) -> list[tuple[Path, Path]]:
    """Return pairs: each run of an undisturbed sweep, and that of the same task of the array."""
    root = cluster.folder / "alone"
    train = [
        "resnet-train",
        "-m",
        f"recipe={words[0]}",
        *words[1:],
        "seed=1,2",
        "gpus=1",
        f"run.root={root}",
    ]
    subprocess.run(train, cwd=cluster.folder, check=True, stdout=subprocess.DEVNULL)
    return [(root / run.name, run) for run in swept(cluster, words)]


def main() -> int:
    """Check jobs, arrays or both.

    The exit code is 0 if all runs end with the same weights as undisturbed ones.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", choices=("jobs", "array"))
    arguments = parser.parse_args()
    if missing := [name for name in ("munged", "slurmctld", "slurmd") if not shutil.which(name)]:
        raise SystemExit(f"{', '.join(missing)} not found: apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    words, pairs = ["mild", *RECIPE, f"max_duration={arguments.steps}ba"], []
    with Cluster(folder) as cluster:
        if arguments.only != "array":
            pairs += compared_jobs(cluster, words)
        if arguments.only != "jobs":
            pairs += compared_tasks(cluster, words)
    is_same = True
    for alone, run in pairs:
        same = (alone / "weights.safetensors").read_bytes() == (
            run / "weights.safetensors"
        ).read_bytes()
        is_same &= same
        outcome = "the same weights" if same else "DIFFERENT WEIGHTS"
        print(f"{run.name:<24} exit code {read(run / 'exit.json').code}, {outcome}")
    if not is_same:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Set up Slurm on this machine, and check that jobs and arrays do not lose progress.

    apt-get install slurm-wlm munge
    python tools/slurm_check.py [--steps 200]

Every run must end with exactly the weights of an uninterrupted run: a job that is requeued manually
and reaches its time limit, a run with one srun task per rank, and the tasks of an array. One of
these tasks is requeued manually.

Requires root on Debian or Ubuntu without another Slurm. Takes about ten minutes on two cores. All
files are in a temporary folder, which is kept if a check fails.
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

from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.run_folder.ending import read_ending

RECIPE = """
mild data.backend=synthetic data.train_size=32 data.eval_resize=32 data.eval_size=32 bs=16
batch.bn_size=8 lr=0.05 model.name=resnet18 schedule.warmup=1ba ssr=1 launch.device=cpu
checkpoint.interval=25ba evaluation.interval=1dur
"""

END_STATES = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")

SLURM_CONF = """\
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
    """The Slurm daemons, in the current folder."""

    def __init__(self):
        self._daemons = []
        os.environ["SLURM_CONF"] = str(Path("slurm.conf").absolute())

    def __enter__(self) -> "Cluster":
        folder = Path.cwd()
        host = socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            Path(name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        node = run_command("slurmd", "-C").splitlines()[0] + " NodeAddr=127.0.0.1 State=UNKNOWN"
        text = SLURM_CONF.format(host=host, folder=folder, node=node)
        Path("slurm.conf").write_text(text)
        names = ("socket", "pid-file", "log-file", "seed-file")
        munge = [f"--{name}={folder / 'munge'}.{name.partition('-')[0]}" for name in names]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *munge)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        for _ in range(900):
            # a failure is not an error, since the controller may not respond yet
            states = subprocess.run(["sinfo", "-h", "-o", "%T"], stdout=subprocess.PIPE, text=True)
            if "idle" in states.stdout:
                return self
            time.sleep(1)
        raise SystemExit(f"gave up after waiting 900 s for an idle node: see {folder}")

    def __exit__(self, *_: object) -> None:
        subprocess.run(["scancel", "--user=root"], check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)

    def _start(self, *command: str) -> None:
        with open("daemons.log", "a") as log:
            self._daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
        time.sleep(2)


def run_command(*command: str) -> str:
    """Run a command, and return its output."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def read_finished_steps(run: Path) -> int:
    """Return the steps that the slowest rank of a run has finished."""
    return min((beat.step for beat in heartbeat.read_beats(run)), default=0)


def report_same_weights(uninterrupted: Path, run: Path) -> bool:
    """Print and return whether a run has the weights of an uninterrupted run."""
    name = "weights.safetensors"
    is_same = (uninterrupted / name).read_bytes() == (run / name).read_bytes()
    outcome = "the same weights" if is_same else "DIFFERENT WEIGHTS"
    print(f"{run.name:<24} exit code {read_ending(run / 'exit.json').code}, {outcome}")
    return is_same


def submit(*arguments: str) -> tuple[str, str]:
    """Submit a job; return its id and its script."""
    text = run_command("resnet-recipes", "slurm", *arguments)
    Path("job.sh").write_text(text)
    return run_command("sbatch", "--parsable", "job.sh").strip(), text


def wait_for_end(number: str, runs: dict[str, Path]) -> list[dict[str, str]]:
    """Wait for the tasks of a job; requeue the task with the job's id once, when it trains.

    Returns the Slurm records of each task.
    """
    is_requeued = False
    restarts = dict.fromkeys(runs, "0")
    while True:
        descriptions = {task: run_command("scontrol", "show", "job", "-o", task) for task in runs}
        jobs = {
            task: dict(re.findall(r"(\S+?)=(\S*)", text)) for task, text in descriptions.items()
        }
        for task, job in jobs.items():
            done = read_finished_steps(runs[task])
            if job["Restarts"] != restarts[task]:
                restarts[task] = job["Restarts"]
                print(f"job {task}: restart {restarts[task]}, after step {done}")
            trains = job["JobId"] == number and job["JobState"] == "RUNNING" and done > 40
            if trains and not is_requeued:
                is_requeued = True
                run_command("scontrol", "requeue", task)
                print(f"job {task}: requeued manually after step {done}")
        if all(job["JobState"] in END_STATES for job in jobs.values()):
            for task, job in jobs.items():
                print(f"job {task}: {job['JobState']} after {job['Restarts']} restarts")
            return list(jobs.values())
        time.sleep(1)


def run_job_pairs(arguments: list[str]) -> list[tuple[Path, Path]]:
    """Return pairs of an uninterrupted run and a run that Slurm started, for two runs.

    One has two srun tasks, and each task is a rank. The other is requeued once manually, and by its
    time limit as often as needed. Exits if it does not complete.
    """
    run_command("resnet-train", *arguments, "gpus=2", "run=uninterrupted")
    uninterrupted = Path("runs/uninterrupted")
    print(f"uninterrupted: {read_finished_steps(uninterrupted)} steps")
    run_command("srun", "--ntasks=2", "--time=20", "resnet-train", *arguments, "run=tasks")
    number, _ = submit(*arguments, "gpus=2", "--time", "5")
    run = Path(f"runs/mild-{number}")
    (job,) = wait_for_end(number, {number: run})
    if job["JobState"] != "COMPLETED" or int(job["Restarts"]) < 2:
        why = "the job did not complete, or in fewer than 2 restarts (more --steps?)"
        raise SystemExit(f"{why}: see {Path.cwd()}")
    return [(uninterrupted, Path("runs/tasks")), (uninterrupted, run)]


def run_array_pairs(arguments: list[str]) -> list[tuple[Path, Path]]:
    """Return pairs: each run of an uninterrupted sweep, and the run of the same array task.

    Exits if a task does not complete, or if none was requeued.
    """
    sweep = "-m", *arguments, "seed=1,2", "gpus=1"
    run_command("resnet-train", *sweep, "run.root=uninterrupted")
    number, text = submit(*sweep, "--time", "10")
    runs = [Path("runs", name) for name in re.findall(r"run\.name=([^ )]+)\)", text)]
    jobs = wait_for_end(number, {f"{number}_{task}": run for task, run in enumerate(runs)})
    states, restarts = ([job[key] for job in jobs] for key in ("JobState", "Restarts"))
    if set(states) != {"COMPLETED"} or "1" not in restarts:
        raise SystemExit(f"the array did not end as expected: see {Path.cwd()}")
    return [(Path("uninterrupted", run.name), run) for run in runs]


def main() -> int:
    """Check jobs and an array.

    Returns 0 if all runs end with the same weights as uninterrupted runs.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    if missing := [name for name in ("munged", "slurmctld", "slurmd") if not shutil.which(name)]:
        raise SystemExit(f"{', '.join(missing)} not found: apt-get install slurm-wlm munge")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    os.chdir(folder)
    run_arguments = [*RECIPE.split(), f"max_duration={arguments.steps}ba"]
    with Cluster():
        pairs = [*run_job_pairs(run_arguments), *run_array_pairs(run_arguments)]
    is_same = [report_same_weights(*pair) for pair in pairs]
    if all(is_same):
        shutil.rmtree(folder)
    return not all(is_same)


if __name__ == "__main__":
    sys.exit(main())

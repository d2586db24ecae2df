"""The Slurm script, run by bash with stand-ins for Slurm's commands."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from resnet_recipes.launch.slurm import script

SRUN = """#!/bin/bash
# a task that ends with exit code {code}, or with 75 when it is told to stop
trap 'echo told by $1; exit 75' USR1 TERM
echo "$@"
for i in $(seq {tenths}); do sleep 0.1; done
exit {code}
"""

SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then echo node7; echo node8; else echo "scontrol $@"; fi
"""


def run(folder: Path, text: str, code: int = 0, tenths: int = 1) -> subprocess.Popen[str]:
    """Start a script with stand-ins in front of PATH."""
    for name, content in {"srun": SRUN.format(code=code, tenths=tenths), "scontrol": SCONTROL, "job.sh": text}.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "41234", "SLURM_JOB_NODELIST": "node[7-8]"}
    return subprocess.Popen(["bash", str(folder / "job.sh")], stdout=subprocess.PIPE, text=True, env=environment)


def test_the_command_goes_on_with_the_run_of_its_job(tmp_path: Path) -> None:
    out, _ = (process := run(tmp_path, script("hot", ["recipe=hot", "data=/data/my images"], nodes=2))).communicate(timeout=10)
    assert process.returncode == 0
    assert out == ("--kill-on-bad-exit=0 resnet-train --resume auto recipe=hot data=/data/my images run.name=hot-41234 gpus=8 "
                   "launch.nodes=2 launch.rdzv=node7:21234\n")


def test_one_node_needs_no_meeting(tmp_path: Path) -> None:
    out, _ = run(tmp_path, script("mild", ["recipe=mild"], gpus=4)).communicate(timeout=10)
    assert out == "--kill-on-bad-exit=0 resnet-train --resume auto recipe=mild run.name=mild-41234 gpus=4 launch.nodes=1\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_that_is_told_to_stop_waits_for_the_save_and_is_queued_again(number: signal.Signals, tmp_path: Path) -> None:
    process = run(tmp_path, script("hot", ["recipe=hot"]), tenths=50)
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert "told by" in out
    assert "scontrol requeue 41234" in out
    assert process.returncode == 75


def test_a_job_that_failed_is_not_queued_again(tmp_path: Path) -> None:
    out, _ = (process := run(tmp_path, script("hot", ["recipe=hot"]), code=1)).communicate(timeout=10)
    assert process.returncode == 1
    assert "requeue" not in out


def test_every_directive_stands_before_the_first_command() -> None:
    lines = script("hot", ["recipe=hot"]).splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(line.startswith("#SBATCH") for line in lines[1:first] if line.startswith("#S"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])

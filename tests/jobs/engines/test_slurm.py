"""The Slurm script, run by bash with stand-ins for the Slurm commands."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from resnet_recipes.jobs.engines import Allocation, Job, make_title
from resnet_recipes.jobs.engines.slurm import (
    NOTICE_SECONDS,
    format_array,
    format_script,
    parse_seconds,
)
from resnet_recipes.jobs.ranks.group import SAVE_SECONDS
from resnet_recipes.recipe.sections import RunConfig
from tests.jobs.engines.strange_names import STRANGE_NAMES
from tests.shared.tables import parse_rows

SRUN = """#!/bin/bash
# a task that ends with exit code {code}, or with 75 when it is told to stop
trap 'echo told by $1; exit 75' USR1 TERM
printf '%s\\n' "$@"
for i in $(seq {tenths}); do sleep 0.1; done
exit {code}
"""

SCONTROL = """#!/bin/bash
echo "scontrol $@"
"""


def start_script(
    folder: Path, text: str, code: int = 0, tenths: int = 1, task: int = 0
) -> subprocess.Popen[str]:
    """Start a script, with stand-ins first in PATH.

    `task` is its number in an array.
    """
    for name, content in {
        "srun": SRUN.format(code=code, tenths=tenths),
        "scontrol": SCONTROL,
        "job.sh": text,
    }.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "41234",
        "SLURM_ARRAY_JOB_ID": "41230",
        "SLURM_ARRAY_TASK_ID": str(task),
    }
    return subprocess.Popen(
        ["bash", str(folder / "job.sh")], stdout=subprocess.PIPE, text=True, env=environment
    )


ONE_NODE = Allocation(1, 4)
TWO_NODES = Allocation(2, 8)
MILD = Job("mild", ["recipe=mild"], ONE_NODE)
RUNS = {f"run-{i}": [f"recipe={name}", f"data=/{name}"] for i, name in enumerate(STRANGE_NAMES)}

#: Arguments of srun before the command.
SRUN_ARGUMENTS = ["--kill-on-bad-exit=0", "--wait=300", "--cpu-bind=none"]
SRUN_ARGUMENTS += ["resnet-train", "--resume", "auto"]


def test_script_starts_launcher_or_a_task_per_rank(tmp_path):
    text = format_script(MILD)
    assert "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n" in text
    out, _ = start_script(tmp_path, text).communicate(timeout=10)
    assert out.splitlines() == [*SRUN_ARGUMENTS, "recipe=mild", "run.name=mild-41234", "gpus=4"]
    text = format_script(MILD._replace(allocation=TWO_NODES))
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n" in text
    out, _ = start_script(tmp_path, text).communicate(timeout=10)
    assert out.splitlines() == [*SRUN_ARGUMENTS, "recipe=mild", "run.name=mild-41234"]


@pytest.mark.parametrize("recipe", STRANGE_NAMES)
def test_script_quotes_names_and_arguments(recipe, tmp_path):
    arguments = [f"recipe={recipe}", f"data=/{recipe}", "run.root=$HOME\n#SBATCH --array=0-999"]
    text = format_script(Job(make_title(recipe), arguments, ONE_NODE))
    process = start_script(tmp_path, text)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    arguments = [
        f"recipe={recipe}",
        f"data=/{recipe}",
        "run.root=$HOME",
        "#SBATCH --array=0-999",
        "",
    ]
    assert out.startswith("\n".join([*SRUN_ARGUMENTS, *arguments]))
    assert not list(tmp_path.rglob("OWNED"))
    assert f"\nrun.name={make_title(recipe)}-41234\n" in out
    assert list(RunConfig(name=f"{make_title(recipe)}-41234").problems()) == []
    directives = text[: text.index("\n\n")].splitlines()
    names = (
        "job-name nodes ntasks-per-node gpus-per-node exclusive mem time requeue open-mode output "
        "signal"
    )
    flags = [" ".join(line.split()[:2]).partition("=")[0] for line in directives[1:]]
    assert flags == [f"#SBATCH --{name}" for name in names.split()]


@pytest.mark.parametrize("task", [0, len(STRANGE_NAMES) - 1])
def test_array_task_starts_the_command_of_its_run(task, tmp_path):
    out, _ = start_script(
        tmp_path, format_array(RUNS, TWO_NODES, "4:00:00"), task=task
    ).communicate(timeout=10)
    arguments = [*SRUN_ARGUMENTS, *RUNS[f"run-{task}"], f"run.name=run-{task}", ""]
    assert out == "\n".join(arguments)
    assert not list(tmp_path.rglob("OWNED"))


def test_array_starts_a_task_per_run_within_limit(tmp_path):
    runs = {"a": ["recipe=mild"], "b": ["recipe=hot"]}
    assert "#SBATCH --array=0-1\n" in format_array(runs, ONE_NODE, "4:00:00")
    text = format_array(runs, ONE_NODE, "4:00:00", at_a_time=1)
    assert "#SBATCH --array=0-1%1\n" in text
    (process := start_script(tmp_path, text, task=2)).communicate(timeout=10)
    assert process.returncode == 2


@pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="needs shellcheck (Debian package shellcheck)"
)
@pytest.mark.parametrize("allocation", [ONE_NODE, TWO_NODES], ids=["one node", "two nodes"])
def test_script_passes_shellcheck(allocation):
    for text in (
        format_array(RUNS, allocation, "4:00:00"),
        *(
            format_script(Job(make_title(name), [f"recipe={name}", f"data={name}"], allocation))
            for name in STRANGE_NAMES
        ),
    ):
        process = subprocess.run(
            ["shellcheck", "--exclude=SC2016", "-"], text=True, capture_output=True, input=text
        )
        assert process.stdout == ""  # SC2016: the single quotes are intended


def test_script_names_the_folder_that_nodes_share():
    for script in (
        format_script(MILD),
        format_array({"a": []}, ONE_NODE, "1:00"),
    ):
        assert "must have access to the folder of runs, run.root (default runs)." in script


def test_script_for_cpus_requests_no_gpus():
    assert "--gpus-per-node=4\n" in format_script(MILD)
    assert "--gpus-per-node" not in format_script(
        Job("mild", ["recipe=mild"], Allocation(1, 4, is_cpu=True))
    )


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        *parse_rows(
            """
90 | 5400
90:30 | 5430
4:00:00 | 14400
1-12 | 129600
1-12:30 | 131400
1-12:00:05 | 129605
 | 0
x | 0
1:2:3:4 | 0
1-2-3 | 0
-5 | 0
\u0663\u0660 | 0
"""
        ),
        ("90\n", 0),
        ("4:00:00\n#SBATCH --array=0-9", 0),
    ],
)
def test_parse_seconds_reads_time_limits_like_slurm(time, seconds):
    assert parse_seconds(time) == int(seconds)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_stopped_job_saves_and_requeues(number, tmp_path):
    process = start_script(tmp_path, format_script(MILD), tenths=50)
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert "told by" in out
    assert "scontrol requeue 41234" in out
    assert process.returncode == 75


def test_stopped_array_task_requeues_alone(tmp_path):
    text = format_array({"a": ["recipe=mild"], "b": ["recipe=hot"]}, ONE_NODE, "4:00:00")
    out, _ = start_script(tmp_path, text, code=75, task=1).communicate(timeout=10)
    assert "scontrol requeue 41230_1\n" in out


def test_failed_job_is_not_requeued(tmp_path):
    out, _ = (process := start_script(tmp_path, format_script(MILD), code=1)).communicate(
        timeout=10
    )
    assert process.returncode == 1
    assert "requeue" not in out


def test_slurm_signals_before_the_save_limit():
    assert NOTICE_SECONDS > SAVE_SECONDS
    assert f"#SBATCH --signal=B:USR1@{NOTICE_SECONDS} " in format_script(MILD)

"""Write Slurm scripts for a recipe or a sweep, which requeue themselves until all runs are done."""

import re
import shlex
from collections.abc import Mapping, Sequence
from math import ceil

from resnet_recipes.jobs.engines import CORES, MEMORY, Allocation, Job

#: Seconds from the Slurm signal to the time limit, enough for a rank to finish its step and save.
NOTICE_SECONDS = 180

#: Minimum job duration in seconds: a shorter job would mostly start up.
MIN_JOB_SECONDS = NOTICE_SECONDS + 120

#: Maximum seconds from the end of the first task to the end of the last: a save, or a summary.
TASK_END_SECONDS = 300

#: Seconds in a job's time limit in addition to its training budget: to measure the machine, and
#: the notice before the limit.
START_SECONDS = 900

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
{array}#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={tasks}
{gpus}{host}
#SBATCH --time={time:<22} # limit, after which the run resumes; a shorter limit may start sooner
#SBATCH --requeue                     # after a preemption the job may run again
#SBATCH --open-mode=append            # a restarted job appends to the output file
#SBATCH --output=%x-{output}.out
#SBATCH --signal=B:USR1@{notice}          # seconds before the time limit: calls the trap below

{choice}

# Once a task has ended, the others get {wait} seconds to end.
srun --kill-on-bad-exit=0 --wait={wait} --cpu-bind=none resnet-train --resume auto {arguments} &
step=$!

# On USR1 or TERM the ranks finish their step, save, and end with exit code 75.
trap 'kill -USR1 "$step"' USR1
trap 'kill -TERM "$step"' TERM
wait "$step"
while kill -0 "$step" 2> /dev/null; do wait "$step"; done      # a signal interrupts wait
wait "$step"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "{job}"; fi
exit "$code"
"""

#: Cores and memory of the node: all, or those for one GPU.
_WHOLE_NODE = """\
#SBATCH --exclusive                   # all cores of the node, for decoding
#SBATCH --mem=0                       # all memory of the node"""
_ONE_GPU = f"""\
#SBATCH --cpus-per-task={CORES}             # cores for decoding
#SBATCH --mem={MEMORY}G"""

_ONE = """\
# A requeued job keeps its id, and so finds its run.
# All nodes must have access to the folder of runs, run.root (default runs).
run={name}-$SLURM_JOB_ID"""

_ARRAY = """\
# Each task of the array is a run; a requeued task keeps its number, and so finds its run.
# All nodes must have access to the folder of runs, run.root (default runs).
case $SLURM_ARRAY_TASK_ID in
{cases}
*) echo "this array has tasks 0 to {last}" >&2; exit 2 ;;
esac"""


def format_script(job: Job, time: str = "24:00:00") -> str:
    """Return the sbatch script of a job, which adds its number to the name of the run.

    `time`, the limit of one job, must be in a form that `parse_seconds` accepts.
    """
    return _fill(
        shlex.join(job.arguments) + ' "run.name=$run"',
        job.allocation,
        name=job.run,
        time=time,
        array="",
        output="%j",
        choice=_ONE.format(name=job.run),
        job="$SLURM_JOB_ID",
    )


def format_array(
    runs: Mapping[str, Sequence[str]],
    allocation: Allocation,
    time: str,
    at_a_time: int | None = None,
) -> str:
    """Return a job array script for the runs of a sweep, by name, with their settings.

    Each run is one task; `at_a_time` limits the tasks that run simultaneously.
    """
    cases = "\n".join(
        f"{number}) arguments=({shlex.join([*arguments, f'run.name={name}'])}) ;;"
        for number, (name, arguments) in enumerate(runs.items())
    )
    tasks = f"0-{len(runs) - 1}" + (f"%{at_a_time}" if at_a_time else "")
    return _fill(
        '"${arguments[@]}"',
        allocation,
        name="sweep",
        time=time,
        array=f"#SBATCH --array={tasks}\n",
        output="%A_%a",
        choice=_ARRAY.format(cases=cases, last=len(runs) - 1),
        job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID",
    )


def _fill(arguments: str, allocation: Allocation, **parts: str) -> str:
    """Return the script.

    On one node `resnet-train` starts the ranks; on several nodes each task is a rank.
    """
    nodes, ranks, is_cpu = allocation
    return _SCRIPT.format(
        nodes=nodes,
        tasks=ranks if nodes > 1 else 1,
        host=_ONE_GPU if nodes * ranks == 1 and not is_cpu else _WHOLE_NODE,
        gpus="" if is_cpu else f"#SBATCH --gpus-per-node={ranks}\n",
        notice=NOTICE_SECONDS,
        wait=TASK_END_SECONDS,
        arguments=arguments if nodes > 1 else f"{arguments} gpus={ranks}",
        **parts,
    )


def format_time(seconds: float) -> str:
    """Return a time limit, rounded up to a minute, as 4:00:00."""
    minutes = ceil(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02}:00"


def parse_seconds(time: str) -> int:
    """Return the seconds of a time limit in a form that Slurm accepts; 0 if invalid.

    Examples: 90, 90:00, 4:00:00, 1-12, 1-12:00:00.
    """
    if not re.fullmatch(
        r"[0-9]{1,6}(:[0-9]{1,2}){0,2}|[0-9]{1,3}-[0-9]{1,2}(:[0-9]{1,2}){0,2}", time
    ):
        return 0
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, minutes, rest = (*parts, 0, 0)[:3]
    else:
        hours, minutes, rest = (0, *parts, 0)[:3] if len(parts) < 3 else parts
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest

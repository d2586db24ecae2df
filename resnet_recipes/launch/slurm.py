"""The script that runs a recipe under Slurm, and puts itself back into the queue until the run is done."""

import shlex
from collections.abc import Sequence

#: Seconds before the time limit at which Slurm says so; a rank finishes its step and saves in less.
NOTICE = 180

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1           # resnet-train starts one process a GPU itself
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive                   # all cores and all memory of the node, for decoding images
#SBATCH --time={time}
#SBATCH --requeue                     # after a preemption, the job may run again
#SBATCH --open-mode=append            # and go on in the same output file
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:USR1@{notice}          # seconds before the time limit at which the trap below is called

# A job that runs again has the same id, and so finds its run. All nodes must see the folder.
run={name}-$SLURM_JOB_ID
{meeting}
srun --kill-on-bad-exit=0 {command} &
step=$!

# Ranks that hear USR1 or TERM finish their step, save, and end with exit code 75.
trap 'kill -USR1 "$step"' USR1
trap 'kill -TERM "$step"' TERM
wait "$step"
while kill -0 "$step" 2> /dev/null; do wait "$step"; done      # a signal ends a wait early
wait "$step"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""

_MEETING = """\
meeting=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$((20000 + SLURM_JOB_ID % 20000))
"""


def script(name: str, words: Sequence[str], nodes: int = 1, gpus: int = 8, time: str = "24:00:00") -> str:
    """Return an sbatch script that trains with `resnet-train WORDS` on `nodes` nodes with `gpus` GPUs each, for `time` a turn."""
    own = ['"run.name=$run"', f"gpus={gpus}", f"launch.nodes={nodes}", *(['"launch.rdzv=$meeting"'] if nodes > 1 else [])]
    command = " ".join([shlex.join(["resnet-train", "--resume", "auto", *words]), *own])
    meeting = _MEETING if nodes > 1 else ""
    return _SCRIPT.format(name=name, nodes=nodes, gpus=gpus, time=time, notice=NOTICE, command=command, meeting=meeting)

"""Write a task file for SkyPilot (0.14): spot machines, replaced until the run is done."""

import shlex
from textwrap import indent

from resnet_recipes.jobs.engines import CORES, MEMORY, SHUTDOWN_SECONDS, STORAGE, Job, format_yaml

#: GPU types; SkyPilot chooses the cheapest. The recipes were published with the first.
_GPUS = ("A100-80GB", "H100")

_TASK = """\
# sky jobs launch {given}{name}.yaml     in a checkout of resnet-recipes, which SkyPilot copies
# It shows the price per hour, and asks before it starts.
name: {name}
num_nodes: {nodes}
resources:
  use_spot: true
{gpus}  cpus: {cores}+
  memory: {memory}+                       # GB
  disk_size: 512                      # GB
  job_recovery:
    recover_on_exit_codes: [75]       # stopped from outside, and saved
{mount}
{secrets}workdir: .                            # the checkout
setup: |
  uv venv --allow-existing --python 3.12 ~/recipes        # SkyPilot's own Python is 3.10
  uv pip install --python ~/recipes/bin/python {package}
run: |
  PATH="$HOME/recipes/bin:$PATH"
{run}
"""

_BUCKET = """\
file_mounts:
  {path}:                           # keeps the runs; written on the machine first, then uploaded
    source: {storage}
    mode: MOUNT_CACHED"""

_VOLUME = """\
volumes:
  {path}: {storage}                   # keeps the runs; all nodes see it"""

_NODES = """\
# torchrun ends with 1 whatever happened; exit.json has the run's own exit code.
rm -f {exit}
trap '[ -n "$!" ] || exit 75; kill -TERM "$!"' TERM
torchrun --nnodes="$SKYPILOT_NUM_NODES" --node-rank="$SKYPILOT_NODE_RANK" \\
  --master-addr="${{SKYPILOT_NODE_IPS%%[[:space:]]*}}" --master-port=29400 \\
  --nproc-per-node={ranks} --shutdown-timeout={saving} \\
  --no-python {command} &
ranks=$!
wait "$ranks"
while kill -0 "$ranks" 2> /dev/null; do wait "$ranks"; done      # a signal interrupts wait
wait "$ranks"
code=$?
if grep -qs '"code": 75' {exit}; then code=75; fi
exit "$code\""""


def format_script(job: Job) -> str:
    """Return the task file of a job; its storage is a bucket or, on several nodes, a volume."""
    nodes, ranks, is_cpu = job.allocation
    gpus = f"  accelerators: {format_yaml(dict.fromkeys(_GPUS, ranks))}  # the cheapest of these\n"
    run = f"exec {shlex.join(job.command)}"
    if nodes > 1:
        ending = shlex.quote(f"{STORAGE}/runs/{job.run}/exit.json")
        command = shlex.join(job.command)
        run = _NODES.format(exit=ending, ranks=ranks, saving=SHUTDOWN_SECONDS, command=command)
    mount = _BUCKET if "://" in job.storage else _VOLUME
    return _TASK.format(
        name=job.name,
        given="".join(f"--secret {name} " for name in job.secrets),
        secrets=f"secrets: {format_yaml(dict.fromkeys(job.secrets))}\n" if job.secrets else "",
        package=shlex.quote(f".[{','.join(job.extras)}]") if job.extras else ".",
        cores=CORES * ranks,
        memory=MEMORY * ranks,
        nodes=nodes,
        gpus="" if is_cpu else gpus,
        mount=mount.format(path=STORAGE, storage=format_yaml(job.storage)),
        run=indent(run, "  "),
    )

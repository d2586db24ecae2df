"""Write a component for torchx (0.7), which runs with any of its schedulers."""

from resnet_recipes.jobs.engines import CORES, MEMORY, SHUTDOWN_SECONDS, Job

_COMPONENT = '''\
"""torchx run -s local_cwd {name}.py:train     (or -s slurm, -s kubernetes ...)
{needs}"""

import os

from torchx.components.dist import ddp
from torchx.specs import AppDef

ARGUMENTS = [
{arguments}
]


def train() -> AppDef:
    """Start the run, or resume it."""
    return ddp(
        *(text.replace("$", "$$") for text in ARGUMENTS),  # torchx replaces $names
        m="resnet_recipes",  # resnet-train
        name="{name}",
        j="{nodes}x{ranks}",  # nodes x ranks
        gpu={gpus},
        cpu={cores},
        memMB={memory},
        env={{
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "{saving}",  # seconds to finish a step and save
            **{{name: os.environ[name] for name in {secrets} if name in os.environ}},
        }},
        max_retries=10,
    )
'''


def format_script(job: Job) -> str:
    """Return the component of a job; all its nodes must have access to the folder of runs."""
    nodes, ranks, is_cpu = job.allocation
    arguments = [argument for argument in job.command[1:] if not argument.startswith("gpus=")]
    return _COMPONENT.format(
        name=job.name,
        needs=f"The machines need resnet-recipes[{','.join(job.extras)}].\n" if job.extras else "",
        arguments="\n".join(f"    {argument!a}," for argument in arguments),
        nodes=nodes,
        ranks=ranks,
        gpus=0 if is_cpu else ranks,
        cores=CORES * ranks,
        memory=1000 * MEMORY * ranks,
        saving=SHUTDOWN_SECONDS,
        secrets=list(job.secrets),
    )

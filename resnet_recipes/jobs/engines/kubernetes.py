"""Write a TrainJob for Kubernetes with Kubeflow Trainer (2.3)."""

from resnet_recipes import __version__
from resnet_recipes.jobs.engines import CORES, MEMORY, SHUTDOWN_SECONDS, STORAGE, Job, format_yaml

#: Name of the cluster secret that contains the environment variables.
_SECRET = "resnet-recipes"

_TRAINJOB = """\
# kubectl apply -f {name}.yaml    on a cluster with Kubeflow Trainer 2.3
{needs}apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    name: torch-distributed       # sets PET_NNODES, PET_NODE_RANK and others, which torchrun reads
  trainer:
    image: resnet-recipes:{version}     # built from the Dockerfile, in your registry
    numNodes: {nodes}
    numProcPerNode: {ranks}
    resourcesPerNode:
      requests: {{cpu: {cores}, memory: {memory}Gi}}
{gpus}{secrets}    command: {command}
  runtimePatches:
  - manager: resnet-recipes
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  spec:
                    terminationGracePeriodSeconds: {grace}      # seconds to finish a step and save
                    containers:
                    - name: node
                      volumeMounts:
                      - {{name: storage, mountPath: {path}}}
                      - {{name: memory, mountPath: /dev/shm}}
                    volumes:
                    - name: storage                         # keeps the runs; all pods see it
                      persistentVolumeClaim: {claim}
                    - name: memory                          # /dev/shm, for batches sent to a GPU
                      emptyDir: {{medium: Memory}}
"""


def format_script(job: Job) -> str:
    """Return the TrainJob of a job; its storage is a persistent volume claim."""
    nodes, ranks, is_cpu = job.allocation
    torchrun = (
        ["torchrun", f"--shutdown-timeout={SHUTDOWN_SECONDS}", "--no-python"] if nodes > 1 else []
    )
    # Kubernetes expands $(NAME) and replaces $$ with $
    command = [argument.replace("$", "$$") for argument in (*torchrun, *job.command)]
    limits = f"      limits: {{nvidia.com/gpu: {ranks}}}\n"
    extras = ",".join(job.extras)
    build = f"# docker build -t resnet-recipes:{__version__} --build-arg EXTRAS={extras} .\n"
    literals = " ".join(f'--from-literal={name}="${name}"' for name in job.secrets)
    comment = f"# kubectl create secret generic {_SECRET} {literals}\n"
    secret = {"name": _SECRET, "optional": True}
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {**secret, "key": name}}}
        for name in job.secrets
    ]
    return _TRAINJOB.format(
        name=job.name,
        needs=(build if extras else "") + (comment if secrets else ""),
        secrets=f"    env: {format_yaml(secrets)}\n" if secrets else "",
        cores=CORES * ranks,
        memory=MEMORY * ranks,
        version=__version__,
        nodes=nodes,
        ranks=ranks,
        gpus="" if is_cpu else limits,
        command=format_yaml(command),
        grace=SHUTDOWN_SECONDS + 30,
        path=STORAGE,
        claim=format_yaml({"claimName": job.storage}),
    )

"""The files of a run folder: names, metrics, summary, endings.

Reading them does not require torch.
"""

CONFIG = "config.yaml"  # the recipe, with all settings
DATA = "data.json"  # facts about the images
PLAN = "plan.txt"
COMMAND = "command.txt"  # the command line
OVERRIDES = "overrides.txt"  # settings from the command line, one per line
PROVENANCE = "provenance.json"  # recipe files and their commit
ENVIRONMENT = "env.json"  # versions and machine
METRICS = "metrics.jsonl"  # one record per line, in order of time
SUMMARY = "summary.json"  # the summary of a finished run
CORRECT_IMAGES = "hits.json"  # validation images that the final network classifies correctly
WEIGHTS = "weights.safetensors"  # final weights, EMA if the recipe uses it
BEST_WEIGHTS = "weights-best.safetensors"  # weights of the best evaluation
RAW_WEIGHTS = "weights-raw.safetensors"  # final weights without EMA
EXIT = "exit.json"  # how the last session ended
LAUNCH = "launch.json"  # facts that the launcher passes to its ranks
TASK = "task.json"  # a one-off task for the ranks, instead of training
LOCK = "lock"
STOP = "stop.txt"  # reason of a stop by `resnet-recipes stop`, until the run has ended
LOGS = "logs"  # one log per rank, and the launcher's log
HEARTBEATS = "heartbeat"  # how far each rank is
ENDINGS = "endings"  # how each rank ended
CHECKPOINTS = "checkpoints"
CHECKPOINT = "step-{:08d}.pt"  # file in that folder; complete only with the .json file
ALL_CHECKPOINTS = "step-*"  # pattern of these files

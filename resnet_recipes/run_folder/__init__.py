"""The files of a run folder: names, metrics, summary, endings; read without torch.

No other package repeats the names of its files and folders.
"""

CONFIG = "config.yaml"  # the recipe, with every setting
DATA = "data.json"  # facts about the images
PLAN = "plan.txt"
COMMAND = "command.txt"  # as it was typed
OVERRIDES = "overrides.txt"  # the settings that were typed, one a line
PROVENANCE = "provenance.json"  # the files of the recipe, and their commit
ENVIRONMENT = "env.json"  # versions and machine
ESTIMATE = "estimate.json"  # training seconds as estimated before the start
METRICS = "metrics.jsonl"  # one record a line, as things happened
SUMMARY = "summary.json"  # of a finished run
HITS = "hits.json"  # the validation images that the final network classifies correctly
EXIT = "exit.json"  # how the last session ended
LAUNCH = "launch.json"  # facts that the launcher passes to the ranks of this session
JOB = "job.json"  # one-off task of the ranks, instead of training
LOCK = "lock"
LOGS = "logs"  # a file for each rank, and the launcher's
ENDINGS = "endings"  # how each rank ended
CHECKPOINTS = "checkpoints"
CHECKPOINT = "step-{:08d}.pt"  # inside it, by step; complete only with the .json next to it

"""What is written in the folder of a run: names, metrics, summary, endings; read without torch.

Nobody else spells these names of its files and folders.
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
LAUNCH = "launch.json"  # what the launcher passes to the ranks of this session
JOB = "job.json"  # what the ranks do instead of training the run, if it is there
LOCK = "lock"
LOGS = "logs"  # a file for each rank, and the launcher's
ENDINGS = "endings"  # how each rank ended
CHECKPOINTS = "checkpoints"
CHECKPOINT = "step-{:08d}.pt"  # in there, by its step; the .json beside it says that it is whole

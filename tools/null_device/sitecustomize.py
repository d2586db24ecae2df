"""Read by every Python on the null device.

Stand-ins for cuDNN, and trust in kernels and in other ranks, for its processes.
"""

import os
import sys

STARTED = ("resnet_recipes.jobs", "resnet_recipes.ops.selftest", "gpu_session/part.py")

if any(name in word for word in sys.orig_argv for name in STARTED):
    import null_device  # noqa: F401

    from resnet_recipes.ops import trial
    from resnet_recipes.training import distributed

    if not os.environ.get("NULL_FAULT"):
        # the device computes nothing that could be compared
        trial.recall = trial.run_trials = lambda operations, *_: dict.fromkeys(operations, "")
    # nor do ranks hear from each other: each believes that all are like itself
    told, distributed.find_first_ranks = (
        distributed.find_first_ranks,
        lambda flags: told(flags) and [0 if flag else -1 for flag in flags.tolist()],
    )
    compared, distributed.is_same_on_all_ranks = (
        distributed.is_same_on_all_ranks,
        lambda tensor: compared(tensor) or True,
    )

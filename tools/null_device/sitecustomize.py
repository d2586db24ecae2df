"""Loaded by every Python process on the null device.

Installs stand-ins for cuDNN, and skips the comparison of kernels and of ranks.
"""

import os
import sys

RANK_PROGRAMS = ("resnet_recipes.jobs", "resnet_recipes.ops.selftest", "gpu_session/part.py")

if any(name in argument for argument in sys.orig_argv for name in RANK_PROGRAMS):
    import null_device  # noqa: F401

    from resnet_recipes.ops import trial
    from resnet_recipes.training import distributed

    if not os.environ.get("NULL_FAULT"):
        # the device computes no results to compare
        trial.get_verdicts = trial.run_trials = lambda operations, *_: dict.fromkeys(operations, "")
    # ranks cannot communicate either: each assumes that all others are identical
    find_devices, distributed.find_first_ranks = (
        distributed.find_first_ranks,
        lambda flags: find_devices(flags) and [0 if flag else -1 for flag in flags.tolist()],
    )
    compare_ranks, distributed.is_same_on_all_ranks = (
        distributed.is_same_on_all_ranks,
        lambda tensor: compare_ranks(tensor) or True,
    )

"""Read by every Python on the null device: gives the ranks of a command stand-ins for cuDNN, and trust in kernels."""

import sys

if any(word.startswith("resnet_recipes.process.") for word in sys.orig_argv):
    import null_device  # noqa: F401

    from resnet_recipes import ops
    from resnet_recipes.training import distributed

    # the device computes nothing that could be compared
    ops.fault = lambda *_: ""
    compared, distributed.agree = distributed.agree, lambda tensor: compared(tensor) or True

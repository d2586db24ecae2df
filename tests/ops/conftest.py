"""Skip the interpreted tests here: Triton decides at import whether to interpret kernels."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore = ["interpreted"]  # test_interpreted.py runs them in a separate process

"""Triton decides at import whether to interpret kernels, so those tests have a process."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore = ["interpreted"]  # run by test_interpreted.py

"""Whether kernels are interpreted is decided when they are imported, so the interpreter has a process of its own."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore = ["interpreted"]        # run by test_interpreted.py

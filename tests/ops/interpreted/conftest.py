"""Run kernels in the Triton interpreter, without its repeated work.

These tests need a separate process: Triton decides whether to interpret a kernel when its module is
imported.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"

import triton.language as tl
from triton.runtime import interpreter

from resnet_recipes.ops.kernels import maps


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject other tests in this process, because their kernels would also be interpreted."""
    if any(Path(__file__).parent not in item.path.parents for item in items):
        raise pytest.UsageError("tests/ops/interpreted needs a process of its own")


@pytest.fixture(autouse=True, scope="session")
def _patch_language_once():
    """Patch the Triton language once, not for every launch and call.

    Do not check integers for overflow, as on a GPU.
    """
    for function in (maps.get, tl.sum):  # their modules import tl and tl.core
        interpreter._patch_lang(function.fn)
    interpreter._patch_lang = lambda _: interpreter._LangPatchScope()
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)

"""Triton's interpreter without the work that it repeats.

This file is read only where these tests are asked for. They need a process of their own: Triton
decides whether to interpret a kernel when its module is imported.
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
    """Refuse to run other tests in this process, whose kernels would be interpreted as well."""
    if any(Path(__file__).parent not in item.path.parents for item in items):
        raise pytest.UsageError("tests/ops/interpreted needs a process of its own")


@pytest.fixture(autouse=True, scope="session")
def repeated_nothing():
    """Patch Triton's language once, not for every launch and call.

    Look for no overflow in integers, as on a GPU.
    """
    for function in (maps.get, tl.sum):  # one that sees `triton.language`, and one of that itself
        interpreter._patch_lang(function.fn)
    interpreter._patch_lang = lambda _: interpreter._LangPatchScope()
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)

"""Triton's interpreter without the work that it repeats."""

import pytest
import triton.language as tl
from triton.runtime import interpreter

from resnet_recipes.ops.kernels import maps


@pytest.fixture(autouse=True, scope="session")
def patched_once():
    """Patch Triton's language once: the interpreter would at every call of a function, for a third of its time."""
    for function in (maps.get, tl.sum):         # one that sees `triton.language`, and one of that itself
        interpreter._patch_lang(function.fn)
    interpreter.InterpretedFunction.__call__ = lambda function, *arguments, **named: function.rewrite()(
        *arguments, **named)

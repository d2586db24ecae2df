"""The fuzzer finds no fault in a few damaged files, without its sanitizers."""

from contextlib import closing

import numpy as np
import pytest

from resnet_recipes.data.native import Engine, explain_unavailable
from tools.fuzz_native import fuzz_betons, fuzz_jpegs


def test_damaged_files_decode_identically_twice_or_are_rejected(tmp_path):
    if why := explain_unavailable():
        pytest.skip(f"the native library {why}")
    rng = np.random.default_rng(0)
    with closing(Engine(2)) as engine:
        assert fuzz_jpegs(engine, 100, rng).total() == 100
        assert fuzz_betons(engine, 3, rng, tmp_path).total() > 3

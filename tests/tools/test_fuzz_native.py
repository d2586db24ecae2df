"""The fuzzer finds no fault in a few damaged files, without its sanitizers."""

from contextlib import closing

import numpy as np

from resnet_recipes.data.native import Engine
from tests.data.loaders import requires_engine
from tools.fuzz_native import fuzz_betons, fuzz_jpegs


@requires_engine
def test_damaged_files_decode_identically_twice_or_are_rejected(tmp_path):
    rng = np.random.default_rng(0)
    with closing(Engine(2)) as engine:
        assert fuzz_jpegs(engine, 100, rng).total() == 100
        assert fuzz_betons(engine, 3, rng, tmp_path).total() > 3

"""The fuzzer finds no fault in a few damaged files, without its sanitizers."""

from contextlib import closing

import numpy as np

from resnet_recipes.data.native import NativeDecoder
from tests.data.loaders import requires_decoder
from tools.fuzz_native import fuzz_betons, fuzz_jpegs


@requires_decoder
def test_damaged_files_decode_identically_twice_or_are_rejected(tmp_path):
    rng = np.random.default_rng(0)
    with closing(NativeDecoder(2)) as decoder:
        assert fuzz_jpegs(decoder, 100, rng).total() == 100
        assert fuzz_betons(decoder, 3, rng, tmp_path).total() > 3

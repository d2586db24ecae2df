"""The loops for Arm processors, compiled and run in an emulator."""

import shutil
import subprocess
from pathlib import Path

import pytest

from resnet_recipes.data.native import PATH

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"


@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason="sudo apt-get install g++-aarch64-linux-gnu qemu-user-static",
)
def test_neon_resize_is_bit_identical_to_scalar_loops(tmp_path):
    source = PATH.parent / "src"
    program = tmp_path / "same_bits"
    files = [
        Path(__file__).with_name("same_bits.cpp"),
        source / "resize.cpp",
        source / "resize_arm.cpp",
    ]
    flags = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-static"]
    subprocess.run([COMPILER, *flags, "-I", source, *files, "-o", program], check=True)
    done = subprocess.run([EMULATOR, program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "NEON\n")

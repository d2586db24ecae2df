"""What Triton lacks is named, with what installs it."""

import sys

import pytest
import torch

from resnet_recipes.ops import toolchain
from resnet_recipes.ops.selftest import mismatch
from tests.ops.test_selftest import CPU, stand_in

PYTHON = "python{}.{}".format(*sys.version_info)


def fails(x, stride):
    raise RuntimeError("Command '['gcc', ...]' returned non-zero exit status 1.")


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine with a compiler and without Python's headers."""
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, f"apt install {PYTHON}-dev"),
        ({"ID": "debian"}, f"apt install {PYTHON}-dev"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, f"dnf install {PYTHON}-devel"),
        ({"ID": "arch"}, f"apt install {PYTHON}-dev or dnf install {PYTHON}-devel"),
    ],
)
def test_missing_headers_are_named_with_the_systems_package(bare, monkeypatch, system, command):
    monkeypatch.setattr(toolchain.platform, "freedesktop_os_release", lambda: system)
    assert mismatch(stand_in(fails), CPU, torch.float32, CPU) == f"Python.h is missing: {command}"
    (bare / "Python.h").touch()
    assert mismatch(stand_in(fails), CPU, torch.float32, CPU).startswith("RuntimeError: Command")


def test_a_missing_compiler_is_named_first(bare, monkeypatch):
    monkeypatch.delenv("CC")
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    assert toolchain.missing().startswith("there is no C compiler: ")

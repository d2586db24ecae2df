"""What is known of this machine's cores, and of its memory."""

import pytest

from resnet_recipes.base import cores
from tests.tables import rows


@pytest.mark.parametrize(
    ("flags", "emulated"),
    rows(
        """
flags : fma avx2 | bf16 fp16
flags : avx512f avx512_bf16 amx_bf16 | fp16
Features : asimd asimdhp | bf16
"""
    ),
)
def test_types_without_instructions_are_emulated(flags, emulated, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "cpuinfo")
    cores.CPUINFO.write_text(flags)
    types = "auto", "fp32", "bf16", "fp16"
    assert [dtype for dtype in types if cores.emulates(dtype)] == emulated.split()
    cores.CPUINFO.unlink()  # where Linux cannot tell
    assert not cores.emulates("bf16")


def test_the_file_cache_of_a_container_counts_as_free(tmp_path):
    assert cores.container_memory(tmp_path) == cores.NO_LIMIT
    (tmp_path / "memory.max").write_text("max\n")
    assert cores.container_memory(tmp_path) == cores.NO_LIMIT
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 600\n")
    assert cores.container_memory(tmp_path) == 700
    (tmp_path / "memory.stat").write_text("anon 900\n")
    assert cores.container_memory(tmp_path) == 100

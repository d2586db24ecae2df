"""What is known of this machine's cores."""

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

"""What is known of this machine's cores."""

import pytest

from resnet_recipes.base import cores


@pytest.mark.parametrize(
    ("flags", "emulated"),
    [
        ("flags : fma avx2", {"bf16", "fp16"}),
        ("flags : avx512f avx512_bf16 amx_bf16", {"fp16"}),
        ("Features : asimd asimdhp", {"bf16"}),
    ],
)
def test_types_without_instructions_are_emulated(flags, emulated, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "cpuinfo")
    cores.CPUINFO.write_text(flags)
    assert {
        dtype for dtype in ("auto", "fp32", "bf16", "fp16") if cores.emulates(dtype)
    } == emulated


def test_where_linux_cannot_tell_nothing_is_said_to_be_emulated(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "missing")
    assert not cores.emulates("bf16")

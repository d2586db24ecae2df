"""Missing build dependencies of the native decoder are named, with the install command."""

import subprocess

import pytest

from resnet_recipes.base.errors import list_advice
from resnet_recipes.doctor import get_exit_code, native
from tests.data.loaders import requires_decoder


@pytest.mark.parametrize(
    ("compiler", "code", "fix"),
    [
        (None, 0, "install g++"),
        ("/usr/bin/g++", 1, "install libjpeg-dev"),
        ("/usr/bin/g++", 0, "pip install --force-reinstall --no-deps ."),
    ],
)
def test_missing_build_tools_are_named_first(compiler, code, fix, monkeypatch):
    monkeypatch.setattr(native, "find_decoder_fault", lambda: "was not built")
    monkeypatch.setattr(native.shutil, "which", lambda name: compiler)
    done = subprocess.CompletedProcess([], code)
    monkeypatch.setattr(native.subprocess, "run", lambda command, **_: done)
    findings = native.check_native()
    assert fix in " ".join(list_advice(findings[0].fix))
    assert "was not built; images are decoded in Python instead, at less than" in findings[-1].what
    assert get_exit_code(findings) == 0  # the decoder is optional


@requires_decoder
def test_working_library_names_its_instruction_set():
    (decoder,) = native.check_native()
    assert decoder.level == "ok"
    assert "libjpeg-turbo" in decoder.what


def test_check_native_reports_threads_that_cannot_start(monkeypatch):
    def fail(threads):
        raise OSError("cannot start 1 threads for decoding: Resource temporarily unavailable")

    monkeypatch.setattr(native, "find_decoder_fault", lambda: "")
    monkeypatch.setattr(native, "NativeDecoder", fail)
    findings = native.check_native()
    assert get_exit_code(findings) == 3
    assert any("Resource temporarily unavailable" in finding.what for finding in findings)

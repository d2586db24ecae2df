"""What the native decoder's build lacks is named, with the line to type."""

import subprocess

import pytest

from resnet_recipes.data.native import why_not
from resnet_recipes.doctor import exit_code, native


@pytest.fixture
def absent(monkeypatch):
    """A machine on which the library was not built."""
    monkeypatch.setattr(
        native, "why_not", lambda: "was not built when resnet-recipes was installed"
    )


def test_without_a_compiler_the_package_to_install_is_named(absent, monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    findings = native.check_native()
    assert "install g++ " in findings[0].fix
    assert "half the speed" in findings[-1].what
    assert exit_code(findings) == 0, "everything works without it"


def test_without_headers_the_package_to_install_is_named(absent, monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        native.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1)
    )
    assert "install libjpeg-dev " in native.check_native()[0].fix


def test_with_everything_there_only_the_installation_is_missing(absent, monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        native.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0)
    )
    assert {finding.fix for finding in native.check_native()} == {
        "pip install --force-reinstall --no-deps ."
    }


def test_a_working_library_says_what_it_runs_on():
    if why := why_not():
        pytest.skip(f"the native library {why}")
    (decoder,) = native.check_native()
    assert decoder.level == "ok"
    assert "libjpeg-turbo" in decoder.what


def test_threads_that_cannot_start_must_be_put_right(monkeypatch):
    def refuse(threads):
        raise OSError("cannot start 1 threads for decoding: Resource temporarily unavailable")

    monkeypatch.setattr(native, "why_not", lambda: "")
    monkeypatch.setattr(native, "Engine", refuse)
    findings = native.check_native()
    assert exit_code(findings) == 3
    assert any("Resource temporarily unavailable" in finding.what for finding in findings)

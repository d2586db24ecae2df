"""What FFCV's installation lacks is named, with the line to type."""

import subprocess

import pytest

from resnet_recipes.doctor import exit_code, ffcv
from resnet_recipes.errors import NotReadyError, Problem


@pytest.fixture
def broken(monkeypatch):
    """A machine where FFCV does not load."""

    def refuse():
        raise NotReadyError([Problem("data.backend", "ffcv", "cannot be used: it is not installed")])

    monkeypatch.setattr(ffcv, "ffcv_native", refuse)


def test_each_missing_header_has_its_own_line(broken, monkeypatch):
    monkeypatch.setattr(ffcv.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(ffcv.subprocess, "run",
                        lambda command, **_: subprocess.CompletedProcess(command, command[-1] != "opencv4"))
    findings = ffcv.check_ffcv()
    text = "\n".join(finding.what + finding.fix for finding in findings)
    assert "libturbojpeg0-dev" in text
    assert "libjpeg-turbo" in text
    assert "libopencv-dev" not in text
    assert exit_code(findings) == 3


def test_without_pkg_config_everything_that_needs_it_is_listed(broken, monkeypatch):
    monkeypatch.setattr(ffcv.shutil, "which", lambda name: None)
    fixes = [finding.fix for finding in ffcv.check_ffcv()]
    wanted = ["g++", "pkg-config", "libopencv-dev", "libturbojpeg0-dev"]
    named = [package for package in wanted if any(f"install {package} " in fix for fix in fixes)]
    assert named == wanted


def test_a_working_ffcv_needs_nothing(monkeypatch):
    monkeypatch.setattr(ffcv, "ffcv_native", lambda: None)
    monkeypatch.setattr(ffcv.importlib.util, "find_spec", lambda name: object())
    assert exit_code(ffcv.check_ffcv()) == 0

"""What Triton needs to compile kernels: a C compiler and Python's headers."""

import os
import platform
import shutil
import sysconfig
from pathlib import Path

_VERSION = sysconfig.get_python_version()
#: For each family of systems: what installs packages, and the packages of compiler and headers.
_PACKAGES = {
    "debian": ("apt install", "gcc", f"python{_VERSION}-dev"),
    "rhel": ("dnf install", "gcc", f"python{_VERSION}-devel"),
}
_FAMILIES = {"ubuntu": "debian", "fedora": "rhel", "centos": "rhel"}


def missing() -> str:
    """Return what is missing and how to install it, or an empty string."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return f"there is no C compiler: {_installed(1)}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return f"Python.h is missing: {_installed(2)}"
    return ""


def _installed(package: int) -> str:
    """Return what to type to install a package."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    names = f"{system.get('ID', '')} {system.get('ID_LIKE', '')}".split()
    families = {_FAMILIES.get(name, name) for name in names} & _PACKAGES.keys()
    return " or ".join(
        f"{_PACKAGES[family][0]} {_PACKAGES[family][package]}"
        for family in sorted(families or _PACKAGES)
    )

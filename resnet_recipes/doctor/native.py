"""Check whether the native decoder works, and find the packages that its build needs."""

import shutil
import subprocess
from collections.abc import Iterator

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Command
from resnet_recipes.data.native import NativeDecoder, describe, find_decoder_fault
from resnet_recipes.doctor import Finding

_COST = "images are decoded in Python instead, at less than 40% of the speed"
_REINSTALL = Command("pip install --force-reinstall --no-deps .")


def check_native() -> list[Finding]:
    """Load the library and start a thread; if that fails, list what the build needs."""
    if why := find_decoder_fault():
        return [*_find_missing(), Finding("warn", f"the native decoder {why}; {_COST}", _REINSTALL)]
    try:
        NativeDecoder(1).close()
    except OSError as error:
        fix = Finding("fix", f"the native decoder {error}", Command("ulimit -u"))
        return [*_find_missing(), fix]
    return [Finding("ok", f"the native decoder works ({describe()})")]


def _find_missing() -> Iterator[Finding]:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        yield _make_finding("a C++ compiler (c++ or g++)", "g++", "compilers")
    elif not _has_jpeg_headers(compiler):
        yield _make_finding(
            "the headers of libjpeg-turbo (jpeglib.h)", "libjpeg-dev", "libjpeg-turbo"
        )


def _has_jpeg_headers(compiler: str) -> bool:
    with atomic.make_temporary_folder() as folder:
        path = folder / "probe.cpp"
        path.write_text("#include <cstdio>\n#include <jpeglib.h>\n")
        done = subprocess.run(
            [compiler, "-fsyntax-only", str(path)], capture_output=True, check=False, timeout=60
        )
    return done.returncode == 0


def _make_finding(what: str, debian: str, conda: str) -> Finding:
    tools = f"sudo apt-get install {debian}", f"conda install -c conda-forge {conda}"
    return Finding("warn", f"missing: {what}", tuple(map(Command, tools)))

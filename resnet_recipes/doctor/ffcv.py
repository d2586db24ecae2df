"""Whether FFCV works here, and what its installation lacks."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.data.beton.native import ffcv_native
from resnet_recipes.doctor import Finding
from resnet_recipes.errors import NotReadyError

#: What ffcv's build asks pkg-config for: (names, what it is, Debian's package, conda-forge's).
_LIBRARIES = (
    (("opencv4", "opencv"), "the headers of OpenCV", "libopencv-dev", "opencv"),
    (("libturbojpeg",), "the headers of libjpeg-turbo", "libturbojpeg0-dev", "libjpeg-turbo"),
)


def check_ffcv() -> list[Finding]:
    """Load FFCV; if that fails, name everything that its installation lacks."""
    try:
        ffcv_native()
    except NotReadyError as error:
        return list(_missing(error.problems[0].rule))
    found = [Finding("ok", "FFCV's compiled library loads: data.backend=ffcv can run")]
    missing = [name for name in ("numba", "cv2") if importlib.util.find_spec(name) is None]
    if missing:
        fix = "pip install --force-reinstall --no-deps ffcv"
        found.append(Finding("warn", f"the ffcv package lacks {', '.join(missing)}", fix))
    return found


def _missing(why: str) -> Iterator[Finding]:
    """Name what is missing, in the order of installation."""
    if shutil.which("c++") is None and shutil.which("g++") is None:
        yield _install("a C++ compiler (c++ or g++)", "g++", "compilers")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield _install("the headers of Python (Python.h)", f"python{version}-dev", f"python={version}")
    if shutil.which("pkg-config") is None:
        yield _install("pkg-config", "pkg-config", "pkg-config")
    for names, what, debian, conda in _LIBRARIES:
        if not any(_has(name) for name in names):
            yield _install(f"{what} ({names[0]}.pc)", debian, conda)
    fix = "after the above:  pip install 'resnet-recipes[ffcv]'    (data.backend=torchvision works without it)"
    yield Finding("fix", f"FFCV {why}", fix)


def _has(library: str) -> bool:
    """Ask pkg-config for a library."""
    tool = shutil.which("pkg-config")
    return tool is not None and subprocess.run([tool, "--exists", library], check=False, timeout=20).returncode == 0


def _install(what: str, debian: str, conda: str) -> Finding:
    fix = f"sudo apt-get install {debian}    or    conda install -c conda-forge {conda}"
    return Finding("fix", f"missing: {what}", fix)

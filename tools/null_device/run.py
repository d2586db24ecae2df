"""Run a Python script on the null device:  python tools/null_device/run.py SCRIPT [ARGUMENTS].

Requires g++ and a CUDA build of torch for its headers. The libraries are built in the folder build,
and rebuilt after their sources have changed.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent


def build(folder: Path) -> None:
    """Compile the stand-ins for runtime and driver into `folder`.

    Raises CalledProcessError if compiling fails, and FileNotFoundError if there is no compiler.
    """
    headers = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "include"
    runtime = folder / "runtime.so"
    driver = folder / "libcuda.so.1"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = ["g++", "-O1", "-shared", "-fPIC", "-w", f"-I{HERE / 'include'}", f"-I{headers}"]
    subprocess.run([*compiler, HERE / "runtime.cpp", HERE / "nccl.cpp", "-o", runtime], check=True)
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-w", HERE / "driver.c", "-o", driver, "-ldl"],
        check=True,
    )
    for name in ("libnvidia-ml.so.1", "libcuda.so"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(driver.name)


def make_environment(folder: Path) -> dict[str, str]:
    """Return an environment that makes Python use the device that `build` built in `folder`."""
    python_path = str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, python_path))
    return os.environ | {
        "LD_PRELOAD": str(folder / "runtime.so"),
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": path,
        "TRITON_LIBCUDA_PATH": str(folder),
    }


if __name__ == "__main__":
    built = HERE / "build"
    last = built / "libcuda.so"
    if not last.exists() or last.stat().st_mtime < max(
        file.stat().st_mtime for file in HERE.glob("*.c*")
    ):
        build(built)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], make_environment(built))

"""Run `python -m MODULE` as a fork of a process that has imported torch: milliseconds, not seconds.

The server is a fork of the pytest process. It reads JSON lines and answers each: {"command",
"folder", "environment", "out", "err"} with a process id, and that id with the exit code of the
process, or null while it runs.

Tests need networks that train in milliseconds. In the forks, model.name=resnet18 is a ResNet with
two narrow blocks, and model.name=resnet34 a narrow ResNet-18: see tests/shared/tiny_networks.py.
"""

import faulthandler
import gc
import json
import multiprocessing.util
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

import torch
import torchvision

from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.base.processes import die_with_parent
from resnet_recipes.jobs import train
from tests.shared.tiny_networks import build_narrow_resnet18, build_shallow_resnet18

#: Modules that are imported before processes are forked.
PRELOADED = (train,)


class ForkServer:
    """The test's interface to the forking process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            serve(theirs.detach())
        theirs.close()
        self._channel = ours.makefile("rw")
        ours.close()

    def run(
        self, folder: Path, *command: str, environment: Mapping[str, str] | None = None
    ) -> "Command":
        """Start `python -m COMMAND` in a folder.

        Its Python child processes are also forks.
        """
        return Command(self, folder, command, os.environ if environment is None else environment)

    def ask(self, question: object) -> Any:
        self._channel.write(json.dumps(question) + "\n")
        self._channel.flush()
        return json.loads(self._channel.readline())

    def close(self) -> None:
        self._channel.close()
        os.waitpid(self._pid, 0)


class Command:
    """A running command, whose output goes to two files."""

    def __init__(
        self,
        server: ForkServer,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
    ):
        self._server = server
        # the files are deleted with this object
        self._streams = [tempfile.NamedTemporaryFile() for _ in ("out", "err")]  # noqa: SIM115
        out, err = (file.name for file in self._streams)
        place = {"folder": str(folder), "environment": dict(environment), "out": out, "err": err}
        self.pid = server.ask({"command": command, **place})

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._server.ask(self.pid)

    def wait(self, timeout: float = 60.0) -> tuple[int, str, str]:
        """Wait for the command; return its exit code, output and errors."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, self.read_streams()
            time.sleep(0.01)
        return code, *self.read_streams()

    def read_streams(self) -> list[str]:
        """Return the output and errors so far."""
        return [Path(file.name).read_text() for file in self._streams]


class Forked(subprocess.Popen):
    """A Python process that need not import torch.

    It is a fork that runs the requested module without `exec`.
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        preexec_fn: Callable[[], object] | None = None,
        **options: Any,
    ):
        if args[:2] == [sys.executable, "-m"]:
            preexec_fn = partial(
                _become,
                args[2:],
                dict(os.environ if env is None else env),
                preexec_fn,
                options.get("pass_fds", ()),
            )
        super().__init__(args, env=env, preexec_fn=preexec_fn, **options)


def _become(
    arguments: Sequence[str],
    environment: dict[str, str],
    first: Callable[[], object] | None,
    inherited: Sequence[int],
) -> NoReturn:
    """Run `python -m ARGUMENTS` in this process; files and folder are already set up."""
    code = 1
    try:
        if first:
            first()
        _close_all_but(inherited)  # including the pipe on which the parent waits for `exec`
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(":"))]
        sys.argv[:] = arguments
        sys.modules.pop(arguments[0], None)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as an interpreter does when it starts
            signal.signal(number, signal.SIG_IGN)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fork_spawned(_: str, arguments: Sequence[str], files: Sequence[int]) -> int:
    """Fork the server process that multiprocessing would start; return its process id."""
    if pid := os.fork():
        return pid
    try:
        _close_all_but(files)
        sys.modules["__main__"] = ModuleType("__main__")  # the server does not import it
        exec(arguments[-1], {})
    finally:
        os._exit(0)


def _close_all_but(files: Sequence[int]) -> None:
    for file in {*range(3, 1024)} - {*files}:
        with suppress(OSError):
            os.close(file)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was open, or read
        return False


def serve(channel: int) -> NoReturn:
    """Fork processes until the other end of the channel is closed."""
    try:
        die_with_parent()
        faulthandler.disable()  # it would write to a pytest file
        os.closerange(3, channel)
        os.closerange(channel + 1, 1024)
        sys.stdout, sys.stderr = (
            open(number, "w", buffering=1, closefd=False)  # noqa: SIM115
            for number in (1, 2)
        )
        torch.set_num_threads(1)
        os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        _replace_networks()
        gc.freeze()  # so that collections in a rank skip inherited objects
        gc.enable()
        subprocess.Popen = Forked
        multiprocessing.util.spawnv_passfds = _fork_spawned
        _answer(os.fdopen(channel, "r"), os.fdopen(os.dup(channel), "w", buffering=1))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # unloading torch takes seconds


def _replace_networks() -> None:
    """Make resnet18 a shallow network, and resnet34 a deeper, narrow one, in all forks."""
    torchvision.models.resnet18 = build_shallow_resnet18
    NETWORKS["resnet18"] = (False, (1, 1, 0, 0))
    torchvision.models.resnet34 = build_narrow_resnet18


def _answer(questions: TextIO, answers: TextIO) -> None:
    commands: dict[int, Forked] = {}
    for line in questions:
        match json.loads(line):
            case int(pid):
                answer = commands[pid].poll()
            case question:
                process = _start(question)
                answer, commands[process.pid] = process.pid, process
        print(json.dumps(answer), file=answers)


def _start(question: dict[str, Any]) -> Forked:
    with open(question["out"], "w") as out, open(question["err"], "w") as err:
        return Forked(
            [sys.executable, "-m", *question["command"]],
            cwd=question["folder"],
            stdin=subprocess.DEVNULL,
            env=question["environment"],
            stdout=out,
            stderr=err,
            start_new_session=True,
        )

"""Start test processes in milliseconds instead of seconds.

A fork of the pytest process forks them, so they import nothing.

It reads JSON lines and replies to each: {"folder", "ranks", "port", "largest_file", "stop_at",
"function", "arguments"} with the pids of the ranks, "wait" with their exit codes, {"command",
"folder", "environment", "out", "err"} with a pid, and {"poll"} with the exit code of that process,
or null while it runs.
"""

import faulthandler
import gc
import json
import multiprocessing.util
import os
import resource
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
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from resnet_recipes.base.architecture import NETWORKS
from resnet_recipes.jobs.rank import (
    LaunchFacts,
    RankProcess,
    die_with_parent,
    run_rank,
)
from resnet_recipes.jobs.train import work
from resnet_recipes.jobs.watchdog import Watchdog
from resnet_recipes.run_folder.lock import HeldFolder

#: Default limits of ranks.
LIMITS = {"largest_file": -1, "stop_at": -1, "function": None, "arguments": {}}


class Nursery:
    """The test's interface to the forking process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            serve(theirs.detach())
        theirs.close()
        self._channel = ours.makefile("rw")
        ours.close()

    def start(self, folder: Path, ranks: int, **limits: Any) -> list[int]:
        """Start the ranks of the run in `folder` as a launcher would; return their process ids.

        Their files cannot exceed `largest_file` bytes. The last rank gets SIGTERM after `stop_at`
        steps. `function` replaces the work of a rank.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = {"folder": str(folder.absolute()), "port": free.getsockname()[1]}
        return self._ask({**LIMITS, **limits, **place, "ranks": ranks})

    def train(self, folder: Path, ranks: int = 1, code: int = 0) -> Path:
        """Train the run in `folder` until its ranks end with `code`; return its folder."""
        self.start(folder, ranks)
        log = folder / "logs/rank0.log"
        assert self.wait() == [code] * ranks, log.read_text()[-2000:]
        return folder

    def call(
        self, folder: Path, ranks: int, function: Callable[..., Any], **arguments: Any
    ) -> list[Any]:
        """Run `function(process, **arguments)` of a test module on every rank.

        Return the JSON results by rank.

        The function replaces the worker, and may call it. Each rank is a separate process, so the
        function may change global state.
        """
        named = [function.__module__, function.__name__]
        self.start(folder, ranks, function=named, arguments=arguments)
        codes = self.wait()
        assert codes == [0] * ranks, "\n".join(
            log.read_text()[-2000:] for log in sorted((folder / "logs").glob("rank*.log"))
        )
        return [json.loads((folder / f"answer{rank}.json").read_text()) for rank in range(ranks)]

    def wait(self) -> list[int]:
        """Wait for the ranks that were started last; return their exit codes by rank."""
        return self._ask("wait")

    def run(
        self, folder: Path, *command: str, environment: Mapping[str, str] | None = None
    ) -> "Command":
        """Run `python -m COMMAND` in a folder.

        Its Python child processes are also forks.
        """
        return Command(self, folder, command, os.environ if environment is None else environment)

    def close(self) -> None:
        """End the forking process."""
        self._channel.close()
        os.waitpid(self._pid, 0)

    def _ask(self, question: object) -> Any:
        self._channel.write(json.dumps(question) + "\n")
        self._channel.flush()
        return json.loads(self._channel.readline())


class Command:
    """A running command, whose output goes to two files."""

    def __init__(
        self, nursery: Nursery, folder: Path, command: Sequence[str], environment: Mapping[str, str]
    ):
        self._nursery = nursery
        # The files are deleted with this object.
        self._said = [tempfile.NamedTemporaryFile() for _ in ("out", "err")]  # noqa: SIM115
        out, err = (file.name for file in self._said)
        place = {"folder": str(folder), "environment": dict(environment), "out": out, "err": err}
        self.pid = nursery._ask({"command": command, **place})

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._nursery._ask({"poll": self.pid})

    def wait(self, timeout: float = 60.0) -> tuple[int, str, str]:
        """Wait for the command; return its exit code, output and errors."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)
        return code, *self.said()

    def said(self) -> list[str]:
        """Return the output and errors so far."""
        return [Path(file.name).read_text() for file in self._said]


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
    words: Sequence[str],
    environment: dict[str, str],
    first: Callable[[], object] | None,
    inherited: Sequence[int],
) -> NoReturn:
    """Run `python -m WORDS` in this process; files and folder are already set up."""
    code = 1
    try:
        if first:
            first()
        _close_all_but(inherited)  # including the pipe on which the parent waits for `exec`
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(":"))]
        sys.argv[:] = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serving(_: str, words: Sequence[str], files: Sequence[int]) -> int:
    """Fork the server process that multiprocessing would start; return its process id."""
    if pid := os.fork():
        return pid
    try:
        _close_all_but(files)
        sys.modules["__main__"] = ModuleType("__main__")  # the server does not import it
        exec(words[-1], {})
    finally:
        os._exit(0)


def _close_all_but(files: Sequence[int]) -> None:
    for file in {*range(3, 1024)} - {*files}:
        with suppress(OSError):
            os.close(file)


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def serve(channel: int) -> NoReturn:
    """Fork ranks until the other end of the channel is closed."""
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
        torchvision.models.resnet18, NETWORKS["resnet18"] = shallow_resnet18, (False, (1, 1, 0, 0))
        torchvision.models.resnet34 = narrow_resnet18  # for runs that need a deeper network
        gc.freeze()  # so that collections in a rank skip inherited objects
        gc.enable()
        subprocess.Popen = Forked
        multiprocessing.util.spawnv_passfds = _serving
        _answer(os.fdopen(channel, "r"), os.fdopen(os.dup(channel), "w", buffering=1))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # unloading torch takes seconds


def _answer(questions: TextIO, answers: TextIO) -> None:
    pids, commands = [], {}
    for line in questions:
        match json.loads(line):
            case "wait":
                answer = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            case {"poll": pid}:
                answer = commands[pid].poll()
            case {"command": _} as question:
                process = _started(question)
                answer, commands[process.pid] = process.pid, process
            case question:
                answer = pids = _ranks(question)
        print(json.dumps(answer), file=answers)


def _ranks(question: dict) -> list[int]:
    """Fork the ranks of a run; return their process ids."""
    pids = []
    doing = _called(*question["function"], question["arguments"]) if question["function"] else work
    for rank in range(question["ranks"]):
        pid = os.fork()
        if pid == 0:
            _rank(rank, question, doing)
        pids.append(pid)
    return pids


def _started(question: dict) -> Forked:
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


def narrow_resnet18(num_classes: int) -> ResNet:
    """Return a ResNet-18 with an eighth of the channels after its stem.

    It has a sixtieth of the parameters.
    """

    class Narrow(ResNet):
        def _make_layer(
            self, block: type, planes: int, *rest: int, **options: int
        ) -> nn.Sequential:
            return super()._make_layer(block, planes // 8, *rest, **options)

    model = Narrow(BasicBlock, [2, 2, 2, 2], num_classes)
    model.__class__ = ResNet  # only the stem of this class is fused
    model.fc = nn.Linear(64, num_classes)
    return model


def shallow_resnet18(num_classes: int) -> ResNet:
    """Return a ResNet-18 with its stem and two narrow blocks; the second block halves the map.

    The time of a step, and even more of a compilation, depends on the number of layers.
    """

    class Shallow(ResNet):
        def _make_layer(
            self, block: type, planes: int, *rest: int, **options: int
        ) -> nn.Sequential:
            if planes <= 128:
                return super()._make_layer(block, planes // 4, *rest, **options)
            return nn.Sequential()

    model = Shallow(BasicBlock, [1, 1, 1, 1], num_classes)
    model.__class__ = ResNet  # only the stem of this class is fused
    model.fc = nn.Linear(32, num_classes)
    return model


def _called(module: str, name: str, arguments: dict) -> Callable[[RankProcess], int]:
    """Return work for a rank that calls a function and writes its result to a file."""
    function = partial(getattr(import_module(module), name), **arguments)

    def work(process: RankProcess) -> int:
        (process.folder / f"answer{process.rank}.json").write_text(json.dumps(function(process)))
        return 0

    return work


def _rank(rank: int, question: dict, work: object) -> NoReturn:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(question["ranks"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(question["port"]),
    }
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if question["largest_file"] >= 0:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (question["largest_file"], resource.RLIM_INFINITY)
        )
    if rank == question["ranks"] - 1:
        _terminate_at(question["stop_at"])
    held = HeldFolder(Path(question["folder"]))
    run_rank(held, work, LaunchFacts(time.monotonic(), console=os.dup(0)))


def _terminate_at(step: int) -> None:
    beat = Watchdog.beat

    def beat_and_stop(self: Watchdog, done: int, phase: str) -> None:
        beat(self, done, phase)
        if done == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Watchdog.beat = beat_and_stop

"""Ranks for tests: a process that has imported everything forks them, in milliseconds instead of seconds.

It reads JSON lines and answers each: {"folder", "ranks", "port", "largest_file", "stop_at", "function", "arguments"}
with the ranks' pids, "wait" with their exit codes.
"""

import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from resnet_recipes.process.rank_process import LOCKED, STARTED, RankProcess, die_with_parent, run_rank
from resnet_recipes.process.watchdog import Watchdog


class Nursery:
    """The forking process, seen from the test."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.process.nursery"]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=root)

    def start(self, folder: Path, ranks: int, largest_file: int = -1, stop_at: int = -1) -> list[int]:
        """Start the ranks of the run in `folder`, as a launcher would, and return their process ids.

        No file of theirs grows beyond `largest_file` bytes; the last rank gets SIGTERM when it has done `stop_at`
        steps.
        """
        return self._start(folder, ranks, largest_file=largest_file, stop_at=stop_at, function=None, arguments={})

    def call(self, folder: Path, ranks: int, function: Callable[..., Any], **arguments: Any) -> list[Any]:
        """Run `function(process, **arguments)` of a test module on every rank; return the results (JSON), by rank.

        It stands in the worker's place, and may call it; each rank is a process of its own, in which it may break what
        it likes.
        """
        named = [function.__module__, function.__name__]
        self._start(folder, ranks, largest_file=-1, stop_at=-1, function=named, arguments=arguments)
        codes = self.wait()
        assert codes == [0] * ranks, "\n".join(log.read_text()[-2000:]
                                               for log in sorted((folder / "logs").glob("rank*.log")))
        return [json.loads((folder / f"answer{rank}.json").read_text()) for rank in range(ranks)]

    def wait(self) -> list[int]:
        """Wait until the ranks that were started last have ended, and return their exit codes by rank."""
        return self._ask("wait")

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)

    def _start(self, folder: Path, ranks: int, **rest: Any) -> list[int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return self._ask({"folder": str(folder.absolute()), "ranks": ranks, "port": port, **rest})

    def _ask(self, question: object) -> list[int]:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve() -> None:
    """Fork ranks until the input ends."""
    import torchvision

    from resnet_recipes.process.rank import work

    torchvision.models.resnet18 = narrow_resnet18
    die_with_parent()
    gc.freeze()         # a collection in a rank then looks only at what is its own
    answers, pids = os.fdopen(os.dup(1), "w", buffering=1), []
    for line in sys.stdin:
        question = json.loads(line)
        if question == "wait":
            print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], file=answers)
            continue
        pids, doing = [], _called(*question["function"], question["arguments"]) if question["function"] else work
        for rank in range(question["ranks"]):
            pid = os.fork()
            if pid == 0:
                _rank(rank, question, doing)
            pids.append(pid)
        print(pids, file=answers)


def narrow_resnet18(num_classes: int) -> object:
    """Return a ResNet-18 with an eighth of the channels after its stem and a sixtieth of the parameters."""
    from torch import nn
    from torchvision.models.resnet import BasicBlock, ResNet

    class Narrow(ResNet):
        def _make_layer(self, block: type, planes: int, *rest: int, **options: int) -> nn.Sequential:
            return super()._make_layer(block, planes // 8, *rest, **options)

    model = Narrow(BasicBlock, [2, 2, 2, 2], num_classes)
    model.fc = nn.Linear(64, num_classes)
    return model


def _called(module: str, name: str, arguments: dict) -> Callable[[RankProcess], int]:
    """Return the work of a rank that calls a function and writes down what it returns."""
    function = partial(getattr(import_module(module), name), **arguments)

    def work(process: RankProcess) -> int:
        (process.folder / f"answer{process.rank}.json").write_text(json.dumps(function(process)))
        return 0

    return work


def _rank(rank: int, question: dict, work: object) -> NoReturn:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(question["ranks"]), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(question["port"]), STARTED: "0", LOCKED: "1",
    }
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if question["largest_file"] >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (question["largest_file"], resource.RLIM_INFINITY))
    if rank == question["ranks"] - 1:
        _terminate_at(question["stop_at"])
    run_rank(Path(question["folder"]), work)


def _terminate_at(step: int) -> None:
    beat = Watchdog.beat

    def beat_and_stop(self: Watchdog, done: int, phase: str) -> None:
        beat(self, done, phase)
        if done == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Watchdog.beat = beat_and_stop


if __name__ == "__main__":
    serve()
    os._exit(0)         # taking torch down costs seconds

"""The package's launcher as a process that tests wait for, signal or kill.

`python -m tests.shared.launcher RUN RANKS PROGRAM`
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnet_recipes.jobs.ranks import group, launcher
from resnet_recipes.run_folder.lock import LockedFolder
from tests.shared import worker

if TYPE_CHECKING:  # it imports torch, which the program does not need
    from tests.shared.forks import Command, ForkServer


class Launcher:
    def __init__(self, forks: "ForkServer"):
        self._forks = forks

    def start(
        self,
        folder: Path,
        ranks: int = 1,
        function: Callable[..., Any] | None = None,
        **arguments: Any,
    ) -> "Command":
        """Start the launcher of a run, whose ranks train it.

        If there is a function of a test module, ranks call `function(process, **arguments)`, and
        end with its result if that is an ExitCode.
        """
        program = group.RANK_MODULE
        if function:
            program = worker.__name__
            call = {"module": function.__module__, "name": function.__name__}
            (folder / worker.CALL).write_text(json.dumps({**call, "arguments": arguments}))
        return self._forks.run(Path.cwd(), __name__, str(folder.absolute()), str(ranks), program)

    def train(self, folder: Path, ranks: int = 1, code: int = 0) -> Path:
        ended = self.start(folder, ranks).wait()
        assert ended[0] == code, ended
        return folder

    def call(
        self, folder: Path, ranks: int, function: Callable[..., Any], **arguments: Any
    ) -> list[Any]:
        """Call `function(process, **arguments)` on every rank; return the results (JSON), by rank.

        It may call the work of a rank, and it may replace any part of the package.
        """
        ended = self.start(folder, ranks, function, **arguments).wait()
        logs = (log.read_text()[-2000:] for log in sorted((folder / "logs").glob("rank*.log")))
        assert ended[0] == 0, "\n".join([str(ended), *logs])
        results = (worker.get_result_path(folder, rank) for rank in range(ranks))
        return [json.loads(path.read_text()) for path in results]


def say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    folder, ranks, group.RANK_MODULE = sys.argv[1:]
    sys.exit(launcher.start(LockedFolder(Path(folder)), group.Group(int(ranks)), say).code)

"""The program of ranks that call a function of a test: `python -m tests.shared.worker RUN`."""

import json
import sys
from importlib import import_module
from pathlib import Path

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.jobs.ranks.rank import LaunchFacts, RankProcess, run_rank
from resnet_recipes.run_folder.lock import HeldFolder

#: The file that names the function.
CALL = "call.json"


def get_result_path(folder: Path, rank: int) -> Path:
    return folder / f"result{rank}.json"


def run_task(process: RankProcess) -> int:
    call = json.loads((process.folder / CALL).read_text())
    result = getattr(import_module(call["module"]), call["name"])(process, **call["arguments"])
    get_result_path(process.folder, process.rank).write_text(json.dumps(result))
    return result if isinstance(result, ExitCode) else ExitCode.DONE


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_rank(HeldFolder(folder), run_task, LaunchFacts.read(folder))

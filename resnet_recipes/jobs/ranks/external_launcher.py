"""Join a run started with another launcher: torchrun or srun."""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes import __version__
from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.errors import (
    Command,
    ExitCode,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
)
from resnet_recipes.base.text import Say, format_long_time, get_first_line
from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.jobs.ranks.group import (
    LOOPBACK_VARIABLES,
    find_temporary_folder_problems,
    get_allocator_settings,
)
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.lock import HeldFolder, LockedFolder

if TYPE_CHECKING:
    from resnet_recipes.jobs.ranks.prepare import Rendezvous

#: Settings that the launcher determines: the number of processes and how they start.
LAUNCHER_SETTINGS = ("gpus", "launch.gpus", "launch.max_restarts")

_SILENCE_SECONDS = 10  # wait for other ranks before a rank reports that it waits
_MAX_WAIT_SECONDS = 1800  # wait for other ranks in total

#: Environment variables that make a process a rank.
_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

#: Environment variables with numbers from launchers.
_SLURM = ("STEP_NUM_TASKS", "PROCID", "LOCALID", "NODEID", "JOB_ID", "CPUS_ON_NODE")
_OF_TORCHRUN = ("LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")
_COUNTS = (*_RANK, *_OF_TORCHRUN, *(f"SLURM_{name}" for name in _SLURM))


def find_launcher() -> str:
    """Return the launcher of this process, torchrun or srun, if the process is a rank; else "".

    An srun task is a rank, unless it is the only task: then it is our launcher. Raises
    NotReadyError if environment variables of a launcher are not valid.
    """
    NotReadyError.raise_if_any(_find_variable_problems(os.environ))
    if count_started_ranks():
        return "torchrun"
    # number of tasks of this step; a batch script lacks it
    tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    return "srun" if tasks > 1 else ""


def count_started_ranks() -> int:
    """Return the number of ranks that the user's launcher started; 0 without one."""
    return int(os.environ["WORLD_SIZE"]) if os.environ.keys() >= {*_RANK} else 0


def train_as_rank(
    arguments: Sequence[str], prepare: Callable[[], LockedFolder | None], say: Say
) -> int:
    """Train as one rank, in the folder that rank 0 prepares; end the process with its exit code.

    Returns DONE if no steps are left to train, and on other ranks the exit code of an error that
    rank 0 raises. Raises NotReadyError if ranks cannot meet, differ, or do not see the folder. On
    rank 0, also raises RecipeError for settings of the launcher, and the errors of `prepare`.
    """
    launcher = find_launcher()
    start = time.monotonic()
    if launcher == "srun":
        os.environ |= _translate_srun(os.environ)
    if _is_on_one_machine(launcher):
        os.environ |= LOOPBACK_VARIABLES | os.environ
    os.environ |= get_allocator_settings()  # before torch reads them

    rendezvous = _join_rendezvous("command")
    _await_others(rendezvous, launcher, say)
    if code := _confirm_arguments(rendezvous, arguments):
        return code
    locked_folder: LockedFolder | None = None
    failure: BaseException | None = None
    if rendezvous.rank == 0:
        try:
            RecipeError.raise_if_any(_find_rank_problems(arguments, launcher))
            locked_folder = prepare()
        except BaseException as error:  # raised once the other ranks have its exit code
            failure = error
            code = getattr(error, "exit_code", ExitCode.FAILED)
    path = str(locked_folder.path.resolve()) if locked_folder else ""
    path, code = json.loads(_join_rendezvous("folder").broadcast(json.dumps([path, code])))
    if failure:
        raise failure
    if path:
        from resnet_recipes.jobs.ranks.rank import LaunchFacts, import_task, run_rank

        held_folder = locked_folder or _open_folder(Path(path), rendezvous.rank)
        facts = LaunchFacts(start, "--verbose" in arguments)
        run_rank(held_folder, import_task(held_folder.path), facts)
    return code


def find_restarted_run(root: Path) -> Path | None:
    """Return the run in `root` that this torchrun started and now restarts.

    Its ranks had the same parent process. None if torchrun has not restarted any.
    """
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return None
    parent = (os.getppid(), socket.gethostname())
    folders = [
        path.parent
        for path in root.glob("*/config.yaml")
        if parent in {(beat.parent, beat.host) for beat in heartbeat.read_beats(path.parent)}
    ]
    return max(folders, key=lambda folder: (folder / CONFIG).stat().st_mtime, default=None)


def _find_variable_problems(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each launcher variable with a value that no launcher would set."""
    values = {name: environment[name] for name in _COUNTS if name in environment}
    invalid = {name: text for name, text in values.items() if not re.fullmatch("[0-9]{1,10}", text)}
    for name, text in invalid.items():
        clause = "must be a whole number; torchrun or srun sets it"
        yield Problem(f"{name}={text}", None, clause, Command(f"unset {name}"))
    if invalid:
        return
    for name, of in ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        if values.keys() >= {name, of} and int(values[name]) >= int(values[of]):
            clause = f"must be less than {of}={values[of]}"
            yield Problem(f"{name}={values[name]}", None, clause, Command(f"unset {name} {of}"))
    if not values.keys() >= {*_RANK}:
        return
    for name in ("MASTER_ADDR", "MASTER_PORT") if int(values["WORLD_SIZE"]) > 1 else ():
        if not environment.get(name):
            clause = "is not set, so the ranks cannot find each other"
            yield Problem(name, None, clause, Hint("start the ranks with torchrun"))


def _is_on_one_machine(launcher: str) -> bool:
    if launcher == "srun":
        return os.environ.get("SLURM_STEP_NUM_NODES") == "1"
    return os.environ.get("LOCAL_WORLD_SIZE") == str(count_started_ranks())


def _translate_srun(slurm: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun variables for a task of srun.

    Raises NotReadyError if srun cannot have set its Slurm variables.
    """
    fix = Command("unset SLURM_STEP_NUM_TASKS")
    try:
        return _get_variables(slurm)
    except KeyError as error:
        raise NotReadyError.of(error.args[0], None, "is not set, but srun sets it", fix) from None
    except IndexError:
        nodes = slurm["SLURM_STEP_TASKS_PER_NODE"]
        clause = f"is not one of the nodes in SLURM_STEP_TASKS_PER_NODE={nodes}"
        raise NotReadyError.of("SLURM_NODEID", slurm["SLURM_NODEID"], clause, fix) from None


def _get_variables(slurm: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun variables for a task of srun.

    Ranks meet on the first node, at a port that depends on the job. Raises KeyError if srun has not
    set a variable, IndexError if the node is not in the list.
    """
    # the first node of a[07-09,11],b2 is a07
    first = re.sub(r"\[(\w+)[^\]]*\]", r"\1", slurm["SLURM_STEP_NODELIST"]).split(",")[0]
    address = "127.0.0.1" if slurm.get("SLURM_STEP_NUM_NODES") == "1" else first
    return {
        "RANK": slurm["SLURM_PROCID"],
        "WORLD_SIZE": slurm["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": slurm["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(_count_ranks_on_cores(slurm)),
        "MASTER_ADDR": slurm.get("MASTER_ADDR", address),
        "MASTER_PORT": slurm.get("MASTER_PORT", str(20000 + int(slurm["SLURM_JOB_ID"]) % 20000)),
    }


def _count_ranks_on_cores(slurm: Mapping[str, str]) -> int:
    """Return the number of ranks that share the cores of this rank.

    These are all ranks on its node, or one if srun assigned cores to the rank.
    """
    # 8(x2),4 means 8 tasks on each of two nodes, then 4
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?", slurm["SLURM_STEP_TASKS_PER_NODE"])
    tasks_here = [int(tasks) for tasks, nodes in runs for _ in range(int(nodes or 1))][
        int(slurm["SLURM_NODEID"])
    ]
    is_bound = count_cores() * tasks_here <= int(
        slurm.get("SLURM_CPUS_ON_NODE", os.cpu_count() or 1)
    )
    return 1 if is_bound else tasks_here


def _find_rank_problems(arguments: Sequence[str], launcher: str) -> Iterator[Problem]:
    """Yield problems of TMPDIR, of settings that the launcher determines, and of unused GPUs."""
    import torch

    yield from find_temporary_folder_problems()
    for argument in arguments:
        if argument.split("=")[0] in LAUNCHER_SETTINGS:
            yield Problem(
                argument,
                None,
                f"is set by {launcher} (WORLD_SIZE={count_started_ranks()})",
                kind=Kind.UNUSED,
            )
    gpus = torch.cuda.device_count()
    if (
        launcher == "srun"
        and os.environ.get("SLURM_STEP_NUM_NODES") == str(count_started_ranks())
        and gpus > 1
    ):
        clause = f"started one task per node, but this node has {gpus} GPUs"
        yield Problem("srun", None, clause, f"--ntasks-per-node={gpus}")


def _confirm_arguments(rendezvous: "Rendezvous", arguments: Sequence[str]) -> int:
    """Check that all ranks have the same software and arguments; return an exit code.

    If they differ, raises NotReadyError on rank 0.
    """
    import torch

    typed = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    try:
        rendezvous.confirm({**typed, "resnet-recipes": __version__, "torch": torch.__version__})
    except NotReadyError as error:
        if rendezvous.rank == 0:
            raise
        return error.exit_code
    return ExitCode.DONE


def _open_folder(folder: Path, rank: int) -> HeldFolder:
    """Return the run folder that rank 0 has prepared. Raises NotReadyError if it is not here."""
    if not (folder / CONFIG).is_file():
        seen_by = f"rank {rank} on {socket.gethostname()}"
        clause = f"is not visible to {seen_by}: all nodes must have access to it"
        raise NotReadyError.of("run.root", str(folder), clause, "run.root=/a/shared/folder")
    return HeldFolder(folder)


def _await_others(rendezvous: "Rendezvous", launcher: str, say: Say) -> None:
    """Wait for the ranks that the launcher starts; rank 0 reports the wait.

    Raises NotReadyError after half an hour.
    """
    start = time.monotonic()
    is_quiet = rendezvous.rank > 0
    key = "SLURM_STEP_NUM_TASKS" if launcher == "srun" else "WORLD_SIZE"
    for _ in rendezvous.await_all():
        seconds = time.monotonic() - start
        if seconds > _MAX_WAIT_SECONDS:
            clause = Statement(
                f"not all of these ranks have started within {format_long_time(seconds)}"
            )
            fix = Command(f"unset {key}")
            raise NotReadyError.of(key, count_started_ranks(), clause, fix)
        if seconds > _SILENCE_SECONDS and not is_quiet:
            is_quiet = True
            say(
                f"{key}={count_started_ranks()}: waiting for the other ranks; if there are none, "
                f"run  unset {key}"
            )


def _join_rendezvous(topic: str) -> "Rendezvous":
    """Return the rendezvous of the ranks. Raises NotReadyError if they cannot connect."""
    from torch.distributed import DistError

    from resnet_recipes.jobs.ranks.prepare import Rendezvous
    from resnet_recipes.training.distributed import read_rank

    try:
        return Rendezvous.for_topic(topic, read_rank("cpu"))
    except (OSError, ValueError, OverflowError, DistError) as error:
        address = "{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ)
        reason = get_first_line(error)
        clause = Statement(f"rank {os.environ['RANK']} cannot reach the others there: {reason}")
        fix = Command("export MASTER_PORT=another")
        raise NotReadyError.of("MASTER_ADDR:MASTER_PORT", address, clause, fix) from None

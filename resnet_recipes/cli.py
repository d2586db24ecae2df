"""The two commands: `resnet-train` and `resnet-recipes`."""

import errno
import os
import signal
import sys

from resnet_recipes import _NEEDS_LINUX

if sys.platform == "win32":  # stop before importing modules that Windows lacks
    print(f"error: {_NEEDS_LINUX}", file=sys.stderr)
    sys.exit(3)

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from traceback import walk_tb
from typing import NoReturn

from resnet_recipes.base.errors import (
    Change,
    Command,
    ExitCode,
    Hint,
    NotReadyError,
    Problem,
    RecipeError,
    TrainingError,
    format_advice,
)
from resnet_recipes.base.text import escape_controls, wrap_text
from resnet_recipes.command_line.arguments import name_as_typed
from resnet_recipes.command_line.printing import get_line_width
from resnet_recipes.commands import dispatch
from resnet_recipes.report.terminal import find_lost_output, protect_output

#: Disk errors; some system calls report them without a file name.
_DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE)


def train(argv: Sequence[str] | None = None) -> int:
    """Run `resnet-train` and return its exit code; without `argv`, exit with it."""
    if argv is not None:
        return run_guarded(dispatch.train, argv)
    protect_output()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    return _end(run_guarded(dispatch.train, sys.argv[1:]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run `resnet-recipes` and return its exit code; without `argv`, exit with it."""
    if argv is not None:
        return run_guarded(dispatch.run, argv)
    protect_output()
    return _end(run_guarded(dispatch.run, sys.argv[1:]))


def run_guarded(run: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a command.

    Errors that a user can fix become messages on stderr and exit codes; other errors are raised.
    """
    starts = run is dispatch.train or list(argv[:1]) == ["train"]
    try:
        os.getcwd()
    except FileNotFoundError:
        advice = format_advice(Hint("change to another folder, and run the command again"))
        print(f"error: the current folder was deleted\n      {advice}", file=sys.stderr)
        return ExitCode.NOT_READY
    try:
        code = run(argv)
        if reason := find_lost_output():
            raise TrainingError(f"the output could not be written: {reason}")
        return code
    except (RecipeError, TrainingError) as error:
        print(format_error(error, starts, argv), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.CANCELLED
    except (Exception, SystemExit) as error:
        if problem := _find_method_problem(error):
            print(format_error(NotReadyError([problem]), starts, argv), file=sys.stderr)
        else:
            print(f"error: {_describe_machine_error(error)}", file=sys.stderr)
        return ExitCode.NOT_READY


def _find_method_problem(error: BaseException) -> Problem | None:
    """Return the problem of an installed method whose code raised an error."""
    if "resnet_recipes.methods" not in sys.modules:
        return None
    from resnet_recipes.methods.plug_ins import find_plug_in_problem

    return find_plug_in_problem(error)


def _describe_machine_error(error: BaseException) -> str:
    """Return the resource that the machine lacks. Raises any other error again."""
    memory = "\n  if memory is limited:  ulimit -v unlimited"
    if isinstance(error, MemoryError):
        return f"there is not enough memory{memory}"
    if isinstance(error, RuntimeError) and _is_raised_by_thread_start(error):
        processes = "\n  if processes are limited:  ulimit -u unlimited"
        return f"a thread cannot be started: {error}{processes}{memory}"
    if isinstance(error, ImportError) and _is_load_failure(error):
        advice = format_advice(Command("pip install --force-reinstall torch torchvision"))
        return f"a library cannot be loaded: {error}\n      {advice}{memory}"
    if isinstance(error, RuntimeError) and _is_raised_by_torchvision_import(error):
        torch = version("torch")
        torchvision = version("torchvision")
        build = torch.partition("+")[2]  # "cpu" or "cu126": PyPI has another
        index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
        advice = format_advice(Command(f"pip install --upgrade torch torchvision{index}"))
        return f"torchvision {torchvision} does not fit torch {torch}\n      {advice}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "a file would be larger than allowed\n  if sizes are limited:  ulimit -f unlimited"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{escape_controls(error.filename)}: {error.strerror or error.args[0]}"
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return (
            f"a file cannot be read or written: {error.strerror}\n"
            "  if it is a temporary file:  export TMPDIR=/another/folder"
        )
    raise error


def _is_raised_by_thread_start(error: BaseException) -> bool:
    *_, (frame, _) = walk_tb(error.__traceback__)
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("threading", "start")


def _is_load_failure(error: ImportError) -> bool:
    """Return whether a library or a module of torch failed to load, for example without memory."""
    return str(error.path).endswith(".so") or str(error.name).startswith("torch")


def _is_raised_by_torchvision_import(error: BaseException) -> bool:
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torchvision"
        for frame in frames
    )


def _end(code: int) -> NoReturn:
    """End this process immediately: unloading torch takes seconds, and a thread may be stuck."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(*_: object) -> None:
    """Exit on Ctrl-C before the ranks start.

    An exception could be lost in a destructor of a library.
    """
    with suppress(OSError):
        os.write(2, b"interrupted: nothing was started\n")
    os._exit(ExitCode.CANCELLED)


def _format_lines(lines: Sequence[str], start: str) -> list[str]:
    """Return the lines of one error, indented and wrapped for the terminal."""
    first, *below = lines
    width = get_line_width()
    wrapped_lines = wrap_text(first, width, start, "    ")
    for line in below:
        wrapped_lines += wrap_text(line, width, " " * 6, " " * 13)
    return wrapped_lines


def _suggest_command(problem: Problem, words: Sequence[str]) -> Problem:
    """Return the problem of a run typed as a recipe, with the corrected command as its fix."""
    fix = problem.fix
    if problem.key != "recipe" or not isinstance(fix, Change) or fix.key != "recipe":
        return problem
    fixed = [fix.value if word == problem.value else word for word in words]
    return problem if fixed == words else problem._replace(fix=Command.of(*fixed))


def format_error(error: RecipeError | TrainingError, starts: bool, argv: Sequence[str]) -> str:
    """Return an error as text for the user.

    It contains each problem with its fix. If the command starts a run, it adds that nothing was
    started; other commands may fail after their work is done. In a pipe, lines are not wrapped.
    """
    if isinstance(error, TrainingError):
        return "\n".join(_format_lines(error.lines(), "error: "))
    problems = error.problems
    if len(problems) == 1:
        program = "resnet-train" if starts and argv[:1] != ["train"] else "resnet-recipes"
        problems = (_suggest_command(problems[0], [program, *argv]),)
    lines = [f"error: {len(problems)} problems", ""] if problems[1:] else []
    texts = [name_as_typed(problem, argv).lines() for problem in problems]
    for problem, text, following in zip(problems, texts, [*texts[1:], []], strict=True):
        is_same = text[1:] == following[1:] and (problem.fix or problem.valid)
        # the advice is printed once, below the last
        lines += _format_lines(text[:1] if is_same else text, "  " if lines else "error: ")
    status = "Nothing was started.  " if starts else ""
    return "\n".join([*lines, "", f"{status}[exit {error.exit_code}]"])

"""The two commands: `resnet-train` and `resnet-recipes`."""

import os
import sys
from collections.abc import Callable, Sequence

from resnet_recipes.errors import ExitCode, RecipeError, TrainingError


def train(argv: Sequence[str] | None = None) -> int:
    """Run `resnet-train` and return its exit code."""
    from resnet_recipes.commands import train as verb
    code = guarded(verb.run, sys.argv[1:] if argv is None else argv)
    if argv is None:
        sys.stderr.flush()
        os._exit(code)          # everything is written: without this, taking torch down keeps the prompt away for seconds
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run `resnet-recipes` and return its exit code."""
    from resnet_recipes.commands import verbs
    return guarded(verbs.run, sys.argv[1:] if argv is None else argv)


def guarded(run: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a command; turn what a user can put right into a message on stderr, and everything into an exit code."""
    try:
        code = run(argv)
        sys.stdout.flush()
        return code
    except (RecipeError, TrainingError) as error:
        print(boxed(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.CANCELLED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())     # the reader is gone: nothing more to say, and nothing failed
        return 0


def boxed(error: RecipeError | TrainingError) -> str:
    """Return an error as a person reads it: each problem, what to type, and what has not happened."""
    from resnet_recipes.report.text import printable
    if isinstance(error, TrainingError):
        return f"error: {printable(error)}"
    lines = [f"error: {len(error.problems)} problems" if len(error.problems) > 1 else "error: 1 problem", ""]
    for problem in error.problems:
        lines += [f"  {printable(line)}" for line in str(problem).splitlines()]
    return "\n".join([*lines, "", f"Nothing was started.  [exit {error.exit_code}]"])

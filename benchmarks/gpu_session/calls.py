"""The calls of a session: time limits and parts."""

from typing import NamedTuple

COMMAND_SECONDS = 540  # limit for the calls of one command
SESSION_SECONDS = 1740  # limit for all calls
QUICK_TIME_FACTOR = 5  # factor on time limits, for machines that only test a session


class Part(NamedTuple):
    """One process of a call: `measure_rows(device, quick, *arguments)` of a module."""

    name: str
    seconds: int  # time limit
    module: str
    arguments: tuple[str, ...] = ()


class Call(NamedTuple):
    """Parts in order, the most important first; parts without time left are skipped."""

    seconds: int
    parts: tuple[Part, ...]


def _list_steps(*names: str, seconds: int = 60) -> tuple[Part, ...]:
    return tuple(Part(name, seconds, "steps", (name,)) for name in names)


MACHINE = Part("machine", 60, "machine")
#: Steps with time to compile the kernels on a new machine.
COMPILING_STEPS = _list_steps("ours, Mild", seconds=120)

#: Correctness comes before speed, and decisive measurements come before explanations. Each call may
#: be the first on its machine, and records the machine. Among the peers our steps run first and
#: again last; the difference between the two is machine drift.
CALLS = {
    "correctness": Call(
        330,
        (
            MACHINE,
            Part("peak speeds", 60, "peak_speeds"),
            Part("decisive checks", 150, "correctness", ("decisive",)),
            Part("kernels", 60, "kernels"),
            Part("memcheck", 60, "sanitizer", ("memcheck",)),
            Part("other dtypes", 120, "correctness", ("dtypes",)),
            Part("methods", 90, "correctness", ("methods",)),
            Part("racecheck", 60, "sanitizer", ("racecheck",)),
        ),
    ),
    "decide": Call(
        200,
        (
            MACHINE,
            *COMPILING_STEPS,
            *_list_steps("hand-written loop, blurred", "ours, no methods", "hand-written loop"),
        ),
    ),
    "profile": Call(
        210,
        (
            Part("ours, Mild", 120, "kernel_profile", ("ours, Mild",)),
            Part("convolutions, searched", 120, "convolutions", ("searched",)),
            Part("hand-written loop", 80, "kernel_profile", ("hand-written loop",)),
            Part("matrix products", 90, "gemms"),
            Part("convolutions, heuristics", 60, "convolutions", ("heuristics",)),
            Part("ours, Mild, kernels off", 90, "kernel_profile", ("ours, Mild, kernels off",)),
        ),
    ),
    "peers": Call(
        320,
        (
            MACHINE,
            *COMPILING_STEPS,
            *_list_steps(
                "timm, blurred",
                "Composer, transcribed",
                "ours, no methods",
                "timm",
                "torchvision reference",
                "ours, Mild, kernels off",
            ),
            Part("ours, Mild, again", 60, "steps", ("ours, Mild", "again")),
            *_list_steps("ours, Mild, heuristics"),
        ),
    ),
    "files": Call(120, (Part("from files", 120, "from_files"),)),
    "compiled": Call(
        290,
        (
            MACHINE,
            *_list_steps(
                "ours, Mild",
                "ours, no methods",
                "hand-written loop, blurred, reduce-overhead",
                "hand-written loop, reduce-overhead",
                "hand-written loop, blurred, max-autotune-no-cudagraphs",
                "ours, Mild, compiled",
                seconds=150,
            ),
        ),
    ),
    "accuracy": Call(250, (Part("accuracy", 250, "accuracy"),)),
}

"""The calls of a session: how long each may take, and which parts it has."""

from typing import NamedTuple

LIMIT, SESSION = 540, 1740  # seconds: of the calls that share a command, and of all calls
PATIENCE = 5  # times as long, for machines on which a session is only tried


class Part(NamedTuple):
    """One process of a call: `rows(device, quick, *words)` of a module."""

    name: str
    seconds: int  # after which it hangs
    module: str
    words: tuple[str, ...] = ()


class Call(NamedTuple):
    """Parts in turn, the most important first: those that no time is left for are left out."""

    seconds: int
    parts: tuple[Part, ...]


def _steps(*names: str, seconds: int = 60) -> tuple[Part, ...]:
    return tuple(Part(name, seconds, "steps", (name,)) for name in names)


MACHINE = Part("machine", 60, "machine")
#: May have to compile the kernels, on a machine that is new.
FIRST = _steps("ours, Mild", seconds=120)

#: What is right comes before what is fast, and what decides before what explains. Each call may be
#: the first on its machine, and names it. Among the peers ours come first and again last: what
#: differs between them is the machine's drift.
CALLS = {
    "contact": Call(
        330,
        (
            MACHINE,
            Part("ceilings", 60, "ceilings"),
            Part("decisive checks", 150, "contact", ("decisive",)),
            Part("kernels", 60, "kernels"),
            Part("memcheck", 60, "sanitizer", ("memcheck",)),
            Part("other dtypes", 120, "contact", ("dtypes",)),
            Part("methods", 90, "contact", ("methods",)),
            Part("racecheck", 60, "sanitizer", ("racecheck",)),
        ),
    ),
    "decide": Call(
        200, (MACHINE, *FIRST, *_steps("bare loop, blurred", "ours, no methods", "bare loop"))
    ),
    "profile": Call(
        210,
        (
            Part("ours, Mild", 120, "profiled", ("ours, Mild",)),
            Part("convolutions, searched", 120, "convolutions", ("searched",)),
            Part("bare loop", 80, "profiled", ("bare loop",)),
            Part("convolutions, heuristics", 60, "convolutions", ("heuristics",)),
            Part("ours, Mild, kernels off", 90, "profiled", ("ours, Mild, kernels off",)),
        ),
    ),
    "peers": Call(
        320,
        (
            MACHINE,
            *FIRST,
            *_steps(
                "timm, blurred",
                "Composer, transcribed",
                "ours, no methods",
                "timm",
                "torchvision reference",
                "ours, Mild, kernels off",
            ),
            Part("ours, Mild, again", 60, "steps", ("ours, Mild", "again")),
            *_steps("ours, Mild, heuristics"),
        ),
    ),
    "whole": Call(120, (Part("from files", 120, "whole"),)),
    "compiled": Call(
        290,
        (
            MACHINE,
            *_steps(
                "ours, Mild",
                "ours, no methods",
                "bare loop, blurred, reduce-overhead",
                "bare loop, reduce-overhead",
                "bare loop, blurred, max-autotune-no-cudagraphs",
                "ours, Mild, compiled",
                seconds=150,
            ),
        ),
    ),
    "learn": Call(250, (Part("learn", 250, "learn"),)),
}

"""The calls of a session: how long each may take, and which parts it has."""

from typing import NamedTuple

LIMIT, SESSION = 540, 1600  # seconds: of the calls that share a command, and of all calls
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


def _again(name: str) -> Part:
    return Part(f"{name}, again", 60, "steps", (name, "again"))


MACHINE = Part("machine", 60, "machine")

#: Three commands: contact and profile; steps and whole; compiled and learn. Each names its machine.
#: In `steps` ours come first and again last: what differs between them is the machine's drift.
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
    "profile": Call(
        210,
        (
            Part("ours, Mild", 90, "profiled", ("ours, Mild",)),
            Part("convolutions, searched", 120, "convolutions", ("searched",)),
            Part("bare loop", 80, "profiled", ("bare loop",)),
            Part("convolutions, heuristics", 60, "convolutions", ("heuristics",)),
            Part("ours, Mild, kernels off", 90, "profiled", ("ours, Mild, kernels off",)),
        ),
    ),
    "steps": Call(
        400,
        (
            MACHINE,
            *_steps(
                "ours, Mild",
                "bare loop, blurred",
                "ours, no methods",
                "bare loop",
                "ours, Mild, kernels off",
                "timm",
                "timm, blurred",
                "torchvision reference",
                "Composer, transcribed",
            ),
            _again("ours, Mild"),
            _again("ours, no methods"),
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

"""The calls of a session: which parts they have, and how many seconds each part may take."""

from typing import NamedTuple

LIMIT = 540  # seconds of one call


class Part(NamedTuple):
    """One process of a call: `rows(device, quick, *words)` of a module."""

    name: str
    seconds: int
    module: str
    words: tuple[str, ...] = ()


#: Contenders of the two calls that compare steps. Ours come first and again last: what differs
#: between the two is the machine's drift.
EAGER = (
    "ours, Mild",
    "ours, no methods",
    "bare loop",
    "bare loop, blurred",
    "timm",
    "timm, blurred",
    "torchvision reference",
    "Composer, transcribed",
    "ours, Mild, kernels off",
)
COMPILED = {
    "bare loop, reduce-overhead": 90,
    "bare loop, max-autotune-no-cudagraphs": 120,
    "bare loop, blurred, max-autotune-no-cudagraphs": 120,
    "ours, Mild, compiled": 90,
}


def _steps(names: dict[str, int]) -> list[Part]:
    return [Part(name, seconds, "steps", (name,)) for name, seconds in names.items()]


def _again(name: str, seconds: int) -> Part:
    return Part(f"{name}, again", seconds, "steps", (name, "again"))


CALLS = {
    "contact": [
        Part("machine", 20, "machine"),
        Part("ceilings", 25, "ceilings"),
        Part("decisive checks", 130, "contact", ("decisive",)),
        Part("other dtypes", 110, "contact", ("dtypes",)),
        Part("methods and pixels", 90, "contact", ("methods",)),
        Part("kernels", 60, "kernels"),
        Part("memcheck", 50, "sanitizer", ("memcheck",)),
        Part("racecheck", 50, "sanitizer", ("racecheck",)),
    ],
    "profile": [
        Part("machine", 20, "machine"),
        Part("ours, Mild", 90, "profiled", ("ours, Mild",)),
        Part("ours, Mild, kernels off", 90, "profiled", ("ours, Mild, kernels off",)),
        Part("bare loop", 80, "profiled", ("bare loop",)),
        Part("convolutions, heuristics", 110, "convolutions", ("heuristics",)),
        Part("convolutions, searched", 140, "convolutions", ("searched",)),
    ],
    "steps": [
        Part("machine", 20, "machine"),
        *_steps(dict.fromkeys(EAGER, 50)),
        _again("ours, Mild", 35),
        _again("ours, no methods", 35),
    ],
    "compiled": [
        Part("machine", 20, "machine"),
        *_steps({"ours, Mild": 40, "ours, no methods": 40}),
        *_steps(COMPILED),
    ],
    "whole": [
        Part("machine", 20, "machine"),
        *_steps({"ours, Mild": 60, "ours, Mild, heuristics": 60}),
        Part("from files", 180, "whole"),
    ],
    "learn": [Part("machine", 20, "machine"), Part("learn", 520, "learn")],
}

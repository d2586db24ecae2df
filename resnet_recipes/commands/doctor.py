"""`resnet-recipes doctor`: check data, decoder, GPUs and this machine before a run."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    Command,
    ExitCode,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    format_advice,
    list_advice,
)
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import find_misspelled
from resnet_recipes.base.text import escape_controls, wrap_text
from resnet_recipes.command_line.arguments import DATA_KEYS, Arguments, get_value
from resnet_recipes.command_line.printing import get_line_width, show
from resnet_recipes.command_line.run_arguments import (
    check_network,
    is_run,
    is_setting,
    open_trained_network,
)
from resnet_recipes.command_line.usage import JSON, Usage
from resnet_recipes.doctor import Finding, get_exit_code, to_json
from resnet_recipes.report.progress import ProgressLine

USAGE = Usage(
    "resnet-recipes doctor [TOPIC] [PATH]",
    "check images, decoder, GPUs and machine; print fixes",
    "resnet-recipes doctor data /data/imagenet",
    {
        "--no-images": "data: do not decode the images",
        "--network RUN|FILE": "data: also find validation images that look like training images to "
        "this network; FILE may need model.name=, as in eval",
        "--fix-val MAP": "data: link images of a flat val/ into class folders, as listed in MAP",
        "--synsets NAMES": "data: file with the class folder of each number in MAP, one per line",
    }
    | JSON,
    """\
Topics:
  data PATH           the images in a folder; use the data.nested_classes= of the run
  native              the native JPEG decoder
  gpu                 driver, memory, and GPUs that torch finds
  run [PATH]          cores, memory and disk
Without a topic: native, gpu and run.""",
)

#: The start of the only setting that the check of a folder accepts.
_NESTED = "data.nested_classes="

_TOPICS = ("data", "native", "gpu", "run")

_FOREIGN_TOPICS = {
    "images": "data",
    "dataset": "data",
    "decoder": "native",
    "cuda": "gpu",
    "machine": "run",
    "memory": "run",
    "disk": "run",
}

MARKS = {"ok": "ok  ", "warn": "warn", "fix": "FIX "}


def check(arguments: Arguments) -> tuple[str, Path | None, list[str]]:
    """Return the topic, its folder and the settings.

    Raises RecipeError if the topic is unknown, or if its arguments are wrong.
    """
    topic, *rest = arguments.positional or ["machine"]
    settings = [argument for argument in rest if is_setting(argument)]
    paths = [argument for argument in rest if argument not in settings]
    if topic not in (*_TOPICS, "machine"):
        folder = get_value([topic], *DATA_KEYS) or topic
        near = find_misspelled(topic, (*_TOPICS, *_FOREIGN_TOPICS))
        fix: str = _FOREIGN_TOPICS.get(near, near)
        if os.path.isdir(folder):
            fix = Command.of("resnet-recipes", "doctor", "data", folder)
        elif is_run(topic):
            fix = Command.of("resnet-recipes", "watch", topic)
        elif not fix and "/" in topic:
            raise NotReadyError.of("PATH", topic, "", kind=Kind.ABSENT)
        valid = () if fix else ("data PATH", "native", "gpu", "run [PATH]")
        raise RecipeError([Problem(topic, None, "unknown topic", fix, valid, Kind.UNKNOWN)])
    errors = ErrorCollector()
    network = arguments.flags.get("--network")
    unused = [setting for setting in settings if topic != "data" or not setting.startswith(_NESTED)]
    with errors:
        if network:
            check_network([network, *settings], USAGE)
        elif unused:
            clause = Statement("`doctor` takes settings only with --network")
            folder = get_value(unused, *DATA_KEYS)
            fix = Command.of("resnet-recipes", "doctor", topic, folder) if folder else ""
            raise RecipeError.of(shlex.join(unused), None, clause, fix, Kind.UNUSED)
    with errors:
        _check_paths(topic, paths)
    with errors:
        if "--fix-val" in arguments and not paths:
            clause = "needs the folder whose val/ has no class folders"
            form = Hint("resnet-recipes doctor data PATH --fix-val MAP")
            raise RecipeError.of("--fix-val", None, clause, form)
    errors.raise_if_any()
    return topic, parse_path("PATH", paths[0]) if paths else None, settings


def run(arguments: Arguments, topic: str, path: Path | None, settings: list[str]) -> int:
    """Check one topic (default: all but data) and print the findings; 3 if a fix is required."""
    if path and "--fix-val" in arguments:
        return _fix_val(path, arguments)
    findings = _check_topics(topic, path, arguments, settings)
    show(arguments, to_json(topic, findings), _format_findings(findings))
    return get_exit_code(findings)


def _check_paths(topic: str, paths: Sequence[str]) -> None:
    """Raise RecipeError unless the topic takes these paths."""
    from resnet_recipes.data.root import find_root_problem

    if topic in ("native", "gpu") and paths:
        clause = Statement(f"`doctor {topic}` takes no argument")
        raise RecipeError.of(shlex.join(paths), None, clause, kind=Kind.UNUSED)
    if len(paths) > 1 or (topic == "data" and not paths):
        form = Hint(f"resnet-recipes doctor {topic} PATH")
        raise RecipeError.of("COMMAND", f"doctor {topic}", "takes one folder", form)
    path = parse_path("PATH", paths[0]) if paths else None
    if topic == "data" and path and not path.exists():
        problem = find_root_problem(str(path))
        NotReadyError.raise_if_any([problem and problem._replace(key="PATH")])
    if topic == "run" and path and not path.is_dir():
        clause, kind = ("is not a folder", Kind.WRONG) if path.exists() else ("", Kind.ABSENT)
        fix = Command.of("resnet-recipes", "watch", paths[0]) if is_run(paths[0]) else ""
        raise NotReadyError.of("PATH", str(path), clause, fix, kind)


def _check_topics(
    topic: str, path: Path | None, arguments: Arguments, settings: Sequence[str]
) -> list[Finding]:
    findings: list[Finding] = []
    if topic == "data":
        from resnet_recipes.doctor.data import check_data
        from resnet_recipes.inference.open import apply_changes
        from resnet_recipes.recipe.schema import Recipe

        name = arguments.flags.get("--network")
        network = open_trained_network([name, *settings], USAGE) if name else None
        recipe = network.recipe if network else apply_changes(Recipe(), settings, [_NESTED[:-1]])
        nested = recipe.data.nested_classes
        decodes = "--no-images" not in arguments
        with ProgressLine("decoding") as show:
            findings += check_data(path, decodes, show, nested)
        if network and get_exit_code(findings) == ExitCode.DONE:
            from resnet_recipes.inference.similar_images import check_similar

            with ProgressLine("comparing") as show:
                findings.append(check_similar(network.to_device(), path, show))
    if topic in ("native", "machine"):
        from resnet_recipes.doctor.native import check_native

        findings += check_native()
    if topic in ("gpu", "machine"):
        from resnet_recipes.doctor.gpu import check_gpu

        findings += check_gpu()
    if topic in ("run", "machine"):
        from resnet_recipes.doctor.run import check_run

        findings += check_run(path)
    return findings


def _fix_val(root: Path, arguments: Arguments) -> int:
    from resnet_recipes.doctor.val_tree import build_val_tree

    synsets = arguments.flags.get("--synsets")
    folder = build_val_tree(
        root,
        parse_path("--fix-val", arguments.flags["--fix-val"]),
        parse_path("--synsets", synsets) if synsets else None,
    )
    print(f"created {folder}, made of links; train with data={folder}")
    return 0


def _format_findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield from wrap_text(finding.what, get_line_width(), f"{MARKS[finding.level]}  ", " " * 6)
        yield from (f"        {escape_controls(path)}" for path in finding.paths)
        for advice in list_advice(finding.fix):
            if not isinstance(advice, Hint | Command):  # a setting of a run
                advice = Hint(f"add {advice} to the command that trains")
            yield from wrap_text(format_advice(advice), get_line_width(), " " * 6, " " * 13)

"""The contract of every command; docs/contributing/command.md adds a command."""

import re
import shlex
import subprocess
import sys

import pytest

from resnet_recipes.command_line.arguments import parse_arguments
from resnet_recipes.commands import COMMANDS, get_usage
from resnet_recipes.commands.completion import SCRIPT_PATHS, format_script

ALL_COMMANDS = ("train", *COMMANDS)
SLOW_LIBRARIES = {"torch", "torchvision", "hydra", "omegaconf", "numpy", "rich", "PIL"}


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_help_page_shows_flags_and_an_example(name, run_command):
    page, err = run_command(f"resnet-recipes {name} anything --help")
    assert run_command(f"resnet-recipes {name} anything -h").out == page
    usage = get_usage(name)
    assert err == ""
    assert page.startswith(f"{usage.line.split(' [')[0][:60]}")
    assert all(flag in page for flag in usage.placeholders)
    assert f"  {usage.example}" in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_example_on_help_page_is_accepted(name):
    arguments = shlex.split(get_usage(name).example.partition(" > ")[0])
    command = ["resnet-train"] if name == "train" else ["resnet-recipes", name]
    assert arguments[: len(command)] == command
    assert get_usage(name).line.split()[: len(command)] == command
    parse_arguments(arguments[len(command) :], get_usage(name))


def test_help_imports_no_slow_library():
    names = ", ".join(f"resnet_recipes.commands.{name}" for name in ALL_COMMANDS)
    code = f"import sys, {names}; sys.exit(str(sys.modules.keys() & {SLOW_LIBRARIES}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "set()\n"


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_unknown_flag_or_missing_argument_is_rejected(name, run_command):
    message = run_command(f"resnet-recipes {name} --no-such-flag", 2).err
    assert "unknown flag --no-such-flag" in message
    fewest, _ = get_usage(name).positional
    if fewest:
        typed = f"resnet-recipes {name}{' word' * (fewest - 1)}"
        error = run_command(typed, 2).err
        assert f"needs {get_usage(name).positional_text}" in error
        usage = get_usage(name)
        # an example with a run or images that this machine may lack is not suggested
        is_unsafe = re.search("last|data=", usage.example)
        assert (usage.line if is_unsafe else f"{typed} ") in error


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_command_with_csv_also_has_json(name):
    flags = get_usage(name).placeholders
    assert "--json" in flags or "--csv" not in flags


@pytest.mark.parametrize("shell", SCRIPT_PATHS)
def test_completion_lists_commands_and_their_recipes(shell):
    text = format_script(shell)
    assert " ".join(COMMANDS) in text
    taking = [name for name in COMMANDS if {"NAME", "RECIPE|RUN"} & {*get_usage(name).line.split()}]
    assert {"show", "diff", "plan", "job"} <= {*taking}
    assert (" " if shell == "fish" else "|").join(taking) in text


def test_overview_names_every_command(run_command):
    lines = run_command("resnet-recipes --help").out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {*COMMANDS}

"""Completions in each shell, computed without starting a program."""

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from resnet_recipes.commands.completion import format_script
from tests.shared.tables import parse_rows


@pytest.fixture(scope="module")
def bash_script() -> str:
    return format_script("bash")


def list_completions(script: str, line: str, folder: Path) -> list[str]:
    ask = (
        f"{script}\nCOMP_LINE='{line}' COMP_POINT={len(line)}\n_resnet_recipes\nprintf '%s\\n' "
        '"${COMPREPLY[@]}"'
    )
    return subprocess.run(
        [shutil.which("bash"), "-c", ask],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/nowhere"},
    ).stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    parse_rows(
        """
resnet-train recipe=mi | mild mild_mlperf mine
resnet-train recipe=mild optimizer.mom | optimizer.momentum=
resnet-train recipe=mild optimizer=l | lamb lars
resnet-train schedule=s | step
resnet-train ~methods.em | ~methods.ema
resnet-train methods.mixup. | methods.mixup.alpha=
resnet-train --resume runs/f | runs/first
resnet-train --resume la | last
resnet-train --dr | --dry-run
resnet-train mi | mild mild_mlperf mine
resnet-recipes show mi | mild mild_mlperf mine
resnet-recipes diff mi | mild mild_mlperf mine
resnet-recipes train ho | hot
resnet-train --describe mi | mild mild_mlperf mine
resnet-recipes export runs/first --to on | onnx
resnet-recipes export last --to onnx --out ru | runs/
resnet-recipes runs --csv rec | recipes/
resnet-train epo | epochs=
resnet-recipes ch |
resnet-recipes conv | convert
resnet-train data=rec | recipes/
resnet-train small methods.distill.labels=rec | recipes/
resnet-train small methods.distill.teacher=runs/f | runs/first/
resnet-train finetune model.weights=la | last
resnet-train finetune model.weights=runs/f | runs/first/
resnet-train evaluation.fl | evaluation.flip=
resnet-recipes eval runs/first evaluation.si | evaluation.sizes=
resnet-train mild ru | run= run.root= run.extends= run.name= runs/first
"""
    ),
)
def test_bash_completes_recipes_settings_methods_and_runs(bash_script, line, expected, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text("")
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/config.yaml").write_text("")
    assert list_completions(bash_script, line, tmp_path) == expected.split()


#: Lines whose last argument has a single completion in every shell, and the completed line.
SINGLE_COMPLETIONS = {
    "resnet-train recipe=min": "recipe=mine",
    "resnet-train data=rec": "data=recipes/",
    "resnet-train min": "mine",
    "resnet-train --resume la": "last",
    "resnet-train finetune model.weights=la": "model.weights=last",
    "resnet-train methods.mixup.al": "methods.mixup.alpha=",
    "resnet-recipes conv": "convert",
    "resnet-recipes show min": "mine",
    "resnet-recipes export last --to on": "onnx",
}


def install_script(shell: str, folder: Path) -> str:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (folder / "recipes").mkdir()
    (folder / "recipes/mine.yaml").write_text("")
    (folder / "script").write_text(format_script(shell))
    return str(folder / "script")


def test_fish_completes_like_bash(tmp_path):
    script = install_script("fish", tmp_path)
    asked = "".join(f"; complete -C '{line}'; echo" for line in SINGLE_COMPLETIONS)
    command = ["fish", "--no-config", "-c", f"source {script}{asked}"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (process.stdout.rstrip("\n").split("\n\n"), process.stderr) == (
        [*SINGLE_COMPLETIONS.values()],
        "",
    )


def test_zsh_on_a_terminal_completes_like_bash(tmp_path):
    script = install_script("zsh", tmp_path)
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {"PATH": "/usr/bin:/bin", "TERM": "dumb"})
    show = 'show() { print -r -- "<$BUFFER>"; BUFFER=; zle redisplay }; zle -N show'
    start = f"autoload -U compinit; compinit -D -u; . {script}; {show}; bindkey '^X' show\n"
    completions = []
    os.write(terminal, start.encode())
    for line in SINGLE_COMPLETIONS:
        os.write(terminal, f"{line}\t\x18".encode())
        screen = b""
        while b">\r\n" not in screen:
            screen += os.read(terminal, 4096)
        completions.append(re.findall(b" ([^ ]*) ?>\r\n", screen)[-1].decode())
    os.write(terminal, b"exit\n")
    os.waitpid(child, 0)
    os.close(terminal)
    assert completions == [*SINGLE_COMPLETIONS.values()]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_quotes_names_and_runs_nothing(shell, tmp_path):
    script = install_script(shell, tmp_path)
    run = "runs/a;touch ran;$(touch ran)`touch ran`'\""
    for name in (run, "runs/a\n;touch ran"):  # the second is not a completion
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("")
    start = "autoload -U compinit; compinit -D -u; " if shell == "zsh" else ""
    ask = f"{start}. {script}; COMP_LINE='x --resume runs/a' COMP_POINT=17; _resnet_recipes"
    enter = 'eval "printf %s ${COMPREPLY[*]}"'
    command = [shell, "-c", f"{ask}; {enter}"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (process.stdout, (tmp_path / "ran").exists()) == (run, False)

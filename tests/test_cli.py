"""The two commands: exit codes, streams, and errors of the machine."""

import io
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from unittest.mock import Mock

import pytest

from resnet_recipes import __version__, cli
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError, TrainingError


def run_shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    run = f"{sys.executable} -c 'import sys; from resnet_recipes import cli; sys.exit(cli.%s())'"
    functions = f'train() {{ {run % "train"} "$@"; }}; recipes() {{ {run % "main"} "$@"; }}'
    script = f"set -o pipefail; {functions}; {command}"
    return subprocess.run(
        ["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def test_advice_that_two_problems_share_is_printed_once():
    problems = [Problem("--to", "timm", clause, ("--to onnx",)) for clause in ("is old", "is slow")]
    text = cli.format_error(RecipeError(problems), False, [])
    assert text.count("--to onnx") == 1
    assert "is old" in text
    assert "is slow" in text


@pytest.mark.parametrize("entry", [cli.train, cli.main])
@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"]])
def test_help_and_version_go_to_stdout(capsys, entry, arguments):
    assert entry(arguments) == 0
    out, err = capsys.readouterr()
    assert out
    assert err == ""
    if arguments == ["--version"]:
        assert out == f"resnet-recipes {__version__}\n"
    else:
        assert max(map(len, out.splitlines())) <= 80


def test_training_without_recipe_prints_help_page(capsys):
    assert cli.train([]) == cli.main(["train"]) == 2
    assert capsys.readouterr().out.startswith("resnet-train NAME")


@pytest.mark.parametrize("first", ["mild", "recipe=mild"])
@pytest.mark.parametrize("verb", [[], ["train"]])
def test_recipe_name_needs_no_key_in_any_position(capsys, first, verb):
    for arguments in ([first, "data=nowhere", "--dry-run"], ["--dry-run", "data=nowhere", first]):
        assert (cli.main if verb else cli.train)([*verb, *arguments]) == 3
        assert "nowhere" in capsys.readouterr().err


def make_unnumbered_error(name: str) -> OSError:
    """Return the error that Python raises for a pipe: an OSError without a number."""
    error = io.UnsupportedOperation("File or stream is not seekable.")
    error.filename = name
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            RecipeError([Problem("lr", -1, "must be positive", "lr=1"), Problem("b", None, "x")]),
            2,
            "error: 2 problems\n\n  lr=-1 must be positive\n",
        ),
        (
            NotReadyError([Problem("data.root", "/x", "is empty")]),
            3,
            "error: data=/x is empty\n\n[exit 3]\n",
        ),
        (
            TrainingError("the loss is not finite at step 3", "lr=1"),
            1,
            "error: the loss is not finite at step 3\n      use:   lr=1\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            PermissionError(13, "Permission denied", "/locked/a"),
            3,
            "error: /locked/a: Permission denied",
        ),
        (make_unnumbered_error("a.part"), 3, "error: a.part: File or stream is not seekable."),
        (OSError(27, "File too large"), 3, "ulimit -f unlimited"),
        (OSError(5, "Input/output error"), 3, "error: a file cannot be read or written: Input"),
        (ImportError("no X", name="torch._dynamo"), 3, "error: a library cannot be loaded: no X"),
        (MemoryError(), 3, "error: there is not enough memory\n  if memory is limited:  ulimit -v"),
    ],
)
def test_user_error_sets_message_and_exit_code(capsys, error, code, message):
    def fail(_):
        raise error

    assert cli.run_guarded(fail, []) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_thread_that_cannot_start_is_reported(capsys):
    threading = {"__name__": "threading"}
    exec("def start(_): raise RuntimeError('no new thread')", threading)
    assert cli.run_guarded(threading["start"], []) == 3
    message = capsys.readouterr().err
    assert message.startswith("error: a thread cannot be started: no new thread")
    assert "  if processes are limited:  ulimit -u unlimited\n" in message


@pytest.mark.parametrize("run", [cli.train, cli.main])
def test_deleted_current_folder_is_reported(run, capsys, monkeypatch, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert run(["no-such-recipe"]) == 3
    assert "error: the current folder was deleted\n      hint: " in capsys.readouterr().err


def test_failed_train_command_prints_nothing_was_started(capsys):
    assert cli.train(["no-such-recipe"]) == 2
    assert capsys.readouterr().err.endswith("\nNothing was started.  [exit 2]\n")
    assert cli.main(["show", "no-such-recipe"]) == 2
    assert capsys.readouterr().err.endswith("\n\n[exit 2]\n")


def test_lack_of_memory_for_torch_is_reported(tmp_path):
    done = run_shell("ulimit -v 1000000; recipes predict a b", tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("error: a library cannot be loaded: libtorch")
    assert "try:   pip install --force-reinstall torch torchvision\n" in done.stderr
    assert done.stderr.endswith("ulimit -v unlimited\n")


def test_windows_prints_advice_before_imports(tmp_path):
    without = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None"
    done = run_shell(f'{sys.executable} -c "{without}; import resnet_recipes.cli"', tmp_path)
    assert done.returncode == 3
    assert done.stderr == (
        "error: this program needs Linux; Windows runs it in WSL:  wsl --install\n"
    )
    done = run_shell(
        f'{sys.executable} -c "{without}; import resnet_recipes as rr; rr.load"', tmp_path
    )
    assert done.stderr.endswith(
        "ImportError: this program needs Linux; Windows runs it in WSL:  wsl --install\n"
    )


def test_internal_error_keeps_its_traceback():
    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cli.run_guarded(fail, [])


@pytest.mark.parametrize(
    "error",
    [
        RecipeError([Problem("\x1b[2J", "\x07", "is odd")]),
        TrainingError("image \x1b[2J"),
        FileNotFoundError(2, "No such file", "\x1b[2J"),
    ],
)
def test_messages_cannot_control_the_terminal(error, capsys):
    assert cli.run_guarded(Mock(side_effect=error), []) > 0
    assert "\\x1b[2J" in (message := capsys.readouterr().err)
    assert "\x1b" not in message


def test_closed_pipe_is_not_an_error(tmp_path):
    result = run_shell(
        "train --help | head -1 && recipes show hot | head -1 && train --list | head -1", tmp_path
    )
    assert result.stderr == ""
    assert result.returncode == 0


#: Commands with streams that are closed, full or use another encoding, and their exit codes.
STREAMS = r"""
2 train recipe=nope 2>&1 | head -0; exit ${PIPESTATUS[0]}
2 recipes validate nope.yaml 2>&1 | head -0; exit ${PIPESTATUS[0]}
2 train recipe=nope 2>&-
0 train --list >&-
0 train --list <&- >&- 2>&-
1 train --list > /dev/full
2 PYTHONIOENCODING=ascii recipes validate $'caf\xc3\xa9.yaml'
2 LC_ALL=C recipes show $'x\xff.yaml'
"""


@pytest.mark.parametrize("line", STREAMS.strip().splitlines())
def test_closed_stdout_changes_code_if_results_are_lost(line, tmp_path):
    code, command = line.split(" ", 1)
    result = run_shell(command, tmp_path)
    assert result.returncode == int(code)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    ["recipe=PATH", "--recipes PATH recipe=mild", "--resume PATH", "--resume auto run.root=PATH"],
)
@pytest.mark.parametrize("kind", ["long", "loop", "locked"])
def test_unresolvable_path_is_reported(kind, arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "locked").mkdir(mode=0)
    place = {"long": "x" * 300, "loop": "loop", "locked": "locked/inside"}[kind]
    assert cli.train(arguments.replace("PATH", place).split()) in (2, 3)
    assert place.split("/")[0] in capsys.readouterr().err


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    imports = "from resnet_recipes import cli\nfrom resnet_recipes.commands import dispatch\n"
    command = [sys.executable, "-c", imports + dedent(code)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_ctrl_c_is_not_lost_in_a_destructor(tmp_path):
    code = """
        import os, signal, time
        signal.signal(signal.SIGINT, signal.default_int_handler)
        class Loses:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
        def run(_):
            Loses()
            return 0
        dispatch.train = run
        cli.train()
    """
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (130, "interrupted: nothing was started\n")


def test_command_exits_although_a_thread_never_ends(tmp_path):
    code = """
        import threading
        def run(_):
            threading.Thread(target=threading.Event().wait).start()
            print("done", end="")
            return 3
        dispatch.run = run
        cli.main()
    """
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stdout) == (3, "done")


def test_listed_and_rejected_flags_import_no_torch(tmp_path):
    code = (
        "import sys; cli.train(['--list']); cli.train(['--help']); "
        "cli.main(['--help']); cli.main(['plan', '-h']); cli.main(['plan', 'milt']); "
        "cli.train(['recipe=milt', 'data=/']); cli.train(['mild', '--sync-bn']); "
        "sys.exit(any(name in sys.modules for name in "
        "('torch', 'hydra', 'omegaconf', 'numpy', 'rich')))"
    )
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "mild" in result.stdout


@pytest.mark.parametrize("error", [OSError(9, "broken"), ImportError("no such name")])
def test_error_unrelated_to_machine_is_raised(error):
    def run(argv):
        raise error

    with pytest.raises(type(error)) as raised:
        cli.run_guarded(run, [])
    assert raised.value is error


def test_mismatched_torchvision_is_reported_with_fix(capsys, monkeypatch):
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.20.0"}
    monkeypatch.setattr(cli, "version", versions.get)

    def run(_argv):
        exec("raise RuntimeError('operator nms does not exist')", {"__name__": "torchvision"})

    assert cli.run_guarded(run, []) == 3
    message = capsys.readouterr().err
    assert "error: torchvision 0.20.0 does not fit torch 2.13.0+cpu\n" in message
    index = "https://download.pytorch.org/whl/cpu"
    assert f"try:   pip install --upgrade torch torchvision --index-url {index}\n" in message

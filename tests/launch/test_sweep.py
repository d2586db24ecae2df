import signal

import pytest

from resnet_recipes.launch import sweep

RUNS = {"a": ["recipe=mild", "seed=1"], "b": ["recipe=mild", "seed=2"], "c": ["recipe=mild", "seed=3"]}


@pytest.fixture
def trained(monkeypatch):
    """Train nothing: return the commands, and end them with the codes that a test sets."""
    commands, codes = [], {}

    def stand_in(command):
        commands.append(command)
        return codes.get(next(word for word in command if word.startswith("run=")), 0)

    monkeypatch.setattr(sweep, "_trained", stand_in)
    return commands, codes


def test_every_run_is_an_ordinary_command_that_can_be_given_again(trained, tmp_path):
    said = []
    assert sweep.train_all(tmp_path, RUNS, said.append) == 0
    assert [command[1:] for command in trained[0]] == [
        ["-m", "resnet_recipes", "recipe=mild", f"seed={seed}", f"run={name}", "--resume", "auto"]
        for seed, name in ((1, "a"), (2, "b"), (3, "c"))]
    assert said[-1] == f"3 of 3 runs are finished in {tmp_path}"


def test_a_finished_run_is_not_started_again(trained, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "summary.json").write_text("{}")
    assert sweep.train_all(tmp_path, RUNS, print) == 0
    assert [command[5] for command in trained[0]] == ["run=a", "run=c"]


def test_a_failed_run_does_not_stop_the_others(trained, tmp_path):
    commands, codes = trained
    codes["run=a"] = 3
    said = []
    assert sweep.train_all(tmp_path, RUNS, said.append) == 1
    assert len(commands) == 3
    assert said[-2:] == [f"2 of 3 runs are finished in {tmp_path}", "  failed with exit code 3: a"]


@pytest.mark.parametrize("code", [75, 130])
def test_a_run_that_was_stopped_from_outside_ends_the_sweep(trained, tmp_path, code):
    commands, codes = trained
    codes["run=b"] = code
    assert sweep.train_all(tmp_path, RUNS, print) == code
    assert len(commands) == 2


def test_a_signal_reaches_the_run_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    script = "trap 'exit 1' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"
    assert sweep._trained(["sh", "-c", script]) == 75           # the sweep was told to stop, whatever became of the run
    assert signal.getsignal(signal.SIGINT) is before
    assert sweep._trained(["sh", "-c", "kill -KILL $$"]) == 137

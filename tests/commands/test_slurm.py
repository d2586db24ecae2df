"""`resnet-recipes slurm` checks what it is told, and prints a script."""

import pytest

from resnet_recipes import cli


def test_the_script_repeats_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["slurm", "hot", "data=/data", "launch.nodes=2", "gpus=4", "lr=1.5", "--time", "4:00:00"]) == 0
    out = capsys.readouterr().out
    assert 'recipe=hot data=/data lr=1.5 "run.name=$run" gpus=4 launch.nodes=2 "launch.rdzv=$meeting"' in out
    assert "#SBATCH --nodes=2\n" in out
    assert "#SBATCH --time=4:00:00\n" in out


@pytest.mark.parametrize(("words", "said"), [
    (["hot", "data=/data", "run=mine"], "is set by the script"),
    (["hot", "data=/data", "lrr=1"], "lrr=1"),
    (["data=/data"], "needs a recipe"),
    (["hot", "data=/caf\udce9"], "data=/caf\\udce9: is not UTF-8"),
    (["hot", "data=/data", "--time", "soon"], "--time=soon: must be a time limit as Slurm writes it"),
    (["hot", "data=/data", "--time", "1:00:00\n#SBATCH --array=0-9"], "must be a time limit as Slurm writes it"),
    (["hot", "data=/data", "--time", "2:00"], "--time=2:00: must be at least 5 minutes"),
])
def test_what_cannot_run_gets_no_script(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["slurm", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err

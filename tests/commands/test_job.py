"""`resnet-recipes job` checks its settings, and prints a job; `slurm` is its short form."""

import re

import pytest

from resnet_recipes import cli
from tests.commands.test_train import SMALL


def test_the_script_repeats_what_was_typed(capsys):
    assert (
        cli.main(
            [
                "slurm",
                "hot",
                "data=/data",
                "nodes=2",
                "gpus=4",
                "lr=1.5",
                "--time",
                "4:00:00",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert 'resnet-train --resume auto recipe=hot data=/data lr=1.5 "run.name=$run" &' in out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" in out
    assert "#SBATCH --time=4:00:00\n" in out


def test_the_array_of_a_sweep_has_the_runs_that_resnet_train_would_make(capsys):
    words = [*SMALL, "seed=1,2", "ssr=1,2"]
    assert cli.main(["slurm", "-m", "mild,hot", *words, "--parallel", "3"]) == 0
    text = capsys.readouterr().out
    assert cli.train(["-m", "recipe=mild,hot", *words, "--dry-run"]) == 0
    names = re.findall("^  ([a-z]+-seed[^ ]+)", capsys.readouterr().out, re.MULTILINE)
    assert re.findall(r"run.name=([^)]+)\) ;;", text) == names
    assert len(names) == 8
    assert "#SBATCH --array=0-7%3\n" in text
    assert "words=(recipe=hot data.backend=synthetic" in text
    assert 'resnet-train --resume auto "${words[@]}" gpus=1 &' in text


STORED = ["job", "mild", "data=/storage/set", "--storage", "s3://bucket", "--for"]


@pytest.mark.parametrize("engine", ["skypilot", "kubernetes", "torchx"])
def test_the_run_has_the_same_name_whenever_its_job_starts(engine, capsys):
    words = ["job", "--for", engine, "mild", "data=/storage/set"]
    words += ["--storage", "mine"] * (engine != "torchx")
    names = []
    for change in ("seed=1", "seed=1", "seed=2"):
        assert cli.main([*words, change]) == 0
        names += [set(re.findall(r"run\.name=(mild-[0-9a-f]{8})\b", capsys.readouterr().out))]
    assert names[0] == names[1] != names[2]
    assert len(names[0]) == 1


def test_a_recipe_of_this_machine_is_refused_where_the_job_would_not_find_it(tmp_path, capsys):
    own = tmp_path / "own.yaml"
    own.write_text("defaults: [mild]\n")
    assert cli.main([*STORED[:1], str(own), *STORED[2:], "skypilot"]) == 2
    assert "is a file on this machine" in capsys.readouterr().err

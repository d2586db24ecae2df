"""A run can be named by its path, its name in ./runs, or `last`."""

import json
import os
from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.run_arguments import list_records, resolve_weights
from resnet_recipes.jobs.lookup import LIST, find_run
from tests.shared.checks import get_error
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows, parse_values


@pytest.fixture
def runs() -> Path:
    """Two runs in ./runs; the run with the first name was started last."""
    for name, seed, age in (("alpha", 1, 10), ("beta", 2, 20)):
        config = create_run_folder(Path("runs"), name, seed=seed) / "config.yaml"
        os.utime(config.with_name("overrides.txt"), (1_700_000_000 - age,) * 2)
        Path(config.parent, "weights.safetensors").touch()
    return Path("runs")


def test_last_ignores_the_file_times_of_copies(runs):
    for name, hour in (("alpha", "10"), ("beta", "11")):
        environment = {"created": f"2026-11-30T{hour}:00:00Z"}
        (runs / name / "env.json").write_text(json.dumps(environment))
    assert find_run("last") == runs / "beta"


@pytest.mark.parametrize("argument", ["runs/alpha", "alpha", "last"])
def test_find_run_accepts_path_name_or_last(runs, argument):
    assert find_run(argument) == runs / "alpha"


def test_find_run_prefers_run_to_other_folder(runs):
    Path("alpha").mkdir()
    assert find_run("alpha") == runs / "alpha"
    assert find_run("./alpha") == Path("alpha")
    weights = resolve_weights(Arguments({}, ["model.weights=alpha"])).positional
    assert weights == ["model.weights=runs/alpha"]
    Path("alpha/config.yaml").touch()
    assert find_run("alpha") == Path("alpha")
    Path("last").write_text("weights")
    assert find_run("last") == Path("last")


@pytest.mark.parametrize("key", ["model.weights", "methods.distill.teacher"])
@pytest.mark.parametrize(
    ("typed", "path"),
    parse_rows(
        """
last | runs/alpha
beta | runs/beta
runs/beta | runs/beta
last,torchvision | runs/alpha,torchvision
resnet50.pt | resnet50.pt
"""
    ),
)
def test_network_setting_accepts_run_names(runs, key, typed, path):
    assert resolve_weights(Arguments({}, [f"{key}={typed}"])).positional == [f"{key}={path}"]


@pytest.mark.parametrize(
    ("flags", "typed", "suggestion"),
    parse_values(
        """
{} | alphq | alpha
{-m: ''} | last | model.weights=runs/NAME
{--resume: auto} | last | model.weights=runs/NAME
"""
    ),
)
def test_weights_setting_rejects_missing_run_and_changing_last(runs, flags, typed, suggestion):
    with pytest.raises(RecipeError, match=suggestion):
        resolve_weights(Arguments(flags, [f"model.weights={typed}"]))


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        ("alpha/weights.safetensors", "alpha"),
        ("alpha/checkpoints/a.pt", "runs/alpha/checkpoints/a.pt"),
    ],
)
def test_weights_setting_suggests_file_of_a_run(runs, typed, suggestion):
    path = Path("runs", typed)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    message = f"did you mean model.weights={suggestion}[?]"
    with pytest.raises(RecipeError, match=message):
        resolve_weights(Arguments({}, [f"model.weights={typed}"]))


@pytest.mark.parametrize("word", ["none", "None", "no", "false", "null"])
def test_word_for_nothing_suggests_no_weights(run_command, word):
    Path("one").mkdir()
    message = run_command(f"resnet-train finetune model.weights={word} --dry-run", 3).err
    assert "use:   model.weights='' model.freeze=none model.freeze_bn=false" in message


@pytest.mark.parametrize(
    ("argument", "nearest"),
    parse_rows(
        """
alphq | alpha
runs/alphq | alpha
alpha.pt | alpha
alpha.safetensors | alpha
alpha/checkpoints/a.pt | alpha
latest | last
newest | last
lst | last
lsat | last
al | alpha
"""
    ),
)
def test_unknown_run_suggests_the_nearest_name(runs, argument, nearest):
    with pytest.raises(RecipeError, match=f"does not exist; did you mean {nearest}"):
        find_run(argument)


def test_other_words_and_files_are_not_suggested(runs):
    Path("lists.jpg").touch()
    with pytest.raises(RecipeError, match=r"`list` does not exist\n.*try: +resnet-recipes runs"):
        find_run("list")


def test_list_records_reports_all_missing_names(runs):
    error = get_error(RecipeError, list_records, ["one", "beta", "two"])
    assert [problem.value for problem in error.problems] == ["one", "two"]


@pytest.mark.parametrize("argument", ["last", "runs"])
def test_find_run_without_runs_suggests_the_demo(argument):
    with pytest.raises(RecipeError, match=r"no runs in ./runs yet\n.*resnet-train demo"):
        find_run(argument)


def test_list_records_accepts_runs_and_folders(runs):
    assert [one.name for one in list_records(["last", "runs"])] == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    parse_values("""
watch last --once | 'alpha: finished'
compare beta last | "A  runs/beta   recipe=mild\\nB  runs/alpha  recipe=mild"
diff beta last | "\\nseed     2  1\\n"
diff mild last | "\\nepochs                                        36       4\\n"
runs last | "\\nalpha"
"""),
)
def test_commands_accept_run_names(runs, run_command, arguments, message):
    for seed, name in enumerate(("alpha", "beta"), 1):
        if "diff" in arguments:
            recipe = f"name: mild\nmax_duration: 4ep\nseed: {seed}\ndata: {{root: /}}\n"
            (runs / name / "config.yaml").write_text(recipe)
    assert message in f"\n{run_command(f'resnet-recipes {arguments}').out}"


def test_missing_run_advises_trying_newest_finished_run(run_command):
    missing = "error: RUN|FILE is missing: a run folder, a checkpoint or a weights file\n"
    message = run_command("resnet-recipes eval", 2).err
    assert message.startswith(f"{missing}      hint:  resnet-recipes eval RUN\n")
    Path(create_run_folder(Path("runs"), "alpha"), "weights.safetensors").touch()
    message = run_command("resnet-recipes eval", 2).err
    assert message.startswith(f"{missing}      try:   resnet-recipes eval last\n")
    config = create_run_folder(Path("runs"), "failed") / "config.yaml"
    os.utime(config.with_name("overrides.txt"), (2_000_000_000,) * 2)
    checkpoint = config.parent / "checkpoints/step-00000008.pt"
    checkpoint.touch()
    checkpoint.with_suffix(".json").write_text('{"bytes": 0}')
    Path("last.jpg").touch()
    message = run_command("resnet-recipes predict last.jpg", 2).err
    assert message.startswith(f"{missing}      try:   resnet-recipes predict alpha last.jpg\n")


@pytest.mark.parametrize(
    ("key", "state", "size", "suggestion"),
    parse_rows(
        """
RUN;FILE | finished | 0 |
RUN;FILE | stopped | 1 |
RUN;FILE | stopped | 0 | half
--resume | stopped | 1 |
--resume | stopped | 0 | half
--resume | finished | 0 | half
--extend | stopped | 0 |
RUN | stopped | 1 | half
"""
    ),
)
def test_unknown_run_suggests_only_runs_that_open(key, state, size, suggestion):
    folder = create_run_folder(Path("runs"), "half", state=state)
    for checkpoint in folder.glob("checkpoints/*.pt"):
        checkpoint.write_text("." * int(size))
    error = get_error(RecipeError, find_run, "haf", key.replace(";", "|"))
    assert [fix for fix in error.problems[0].corrections if fix != LIST] == suggestion.split()

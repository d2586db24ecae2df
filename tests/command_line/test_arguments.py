"""Problems name the arguments of the command."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import Hint, NotReadyError, Problem, RecipeError, Value
from resnet_recipes.command_line.arguments import list_typed_words, name_as_typed, parse_arguments
from resnet_recipes.command_line.usage import Usage
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("argv", "key", "value", "named"),
    parse_rows(
        """
mild lr=-1.50 | optimizer.lr | -1.5 | lr=-1.50
mild optimizer.lr=-1 | optimizer.lr | -1 | optimizer.lr=-1
mild lr=1 lr=-1 | optimizer.lr | -1 | lr=-1
mild epochs=9 | max_duration | 9ep | epochs=9
mild ~methods.ema | methods.ema | x | ~methods.ema
mild seed=1 | batch.global_size | 2048 | bs=2048
-m mild lr=1,-1 | optimizer.lr | -1.0 | lr=-1.0
-m mild seed=a,b | seed | a | seed=a
mild log.to=[csv,x,wandb] | log.to | x | log.to=[csv,x,wandb]
eval run --csv x.txt | --csv | x.txt | --csv x.txt
eval run --csv=x.txt | --csv | x.txt | --csv=x.txt
eval run | --csv | x.txt | --csv=x.txt
"""
    ),
)
def test_problem_quotes_the_argument_as_typed(argv, key, value, named):
    assert name_as_typed(Problem(key, value, "wrong"), argv.split()).lines()[0] == f"{named} wrong"


def test_suggested_value_keeps_the_typed_name():
    problem = Problem("optimizer.lr", "1%", "wrong", Value("0.01"))
    assert name_as_typed(problem, ["lr=1%"]).lines()[1] == "use:   lr=0.01"
    assert name_as_typed(problem, ["optimizer.lr=1%"]).lines()[1] == "use:   optimizer.lr=0.01"


def test_paths_are_relative_to_current_folder():
    folder = f"{Path.cwd()}/images"
    problem = Problem("data.root", folder, f"{folder}/a is odd", (f"data={folder}", Hint(folder)))
    typed = name_as_typed(problem, ["mild"])
    assert (typed.value, typed.clause) == ("images", "images/a is odd")
    assert typed.advice == ("data=images", "images")
    assert typed.corrections == ("data=images",)


def test_problem_of_recipe_file_is_unchanged():
    problem = Problem("optimizer.lr", -1, "wrong", where="mine.yaml:2")
    assert name_as_typed(problem, ["lr=1"]) == problem


def test_parse_arguments_rejects_missing_output_folder(tmp_path):
    usage = Usage("resnet-recipes x", "", "", {"--csv FILE.csv": "", "--json": ""})
    missing = str(tmp_path / "none/a.csv")
    with pytest.raises(NotReadyError, match=r"its folder does not exist\n.*mkdir -p"):
        parse_arguments(["--csv", missing], usage)
    with pytest.raises(RecipeError, match="unknown flag --jsn"):
        parse_arguments(["--csv", missing, "--jsn"], usage)


@pytest.mark.parametrize(
    "typed", ["resnet-train -m mild lr=1,2", "resnet-recipes train -m mild lr=1,2"]
)
def test_typed_words_are_those_of_resnet_train(typed, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/" + typed.split()[0], *typed.split()[1:]])
    assert list_typed_words() == ["resnet-train", "-m", "mild", "lr=1,2"]

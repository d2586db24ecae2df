"""Characters from web pages, chats and terminals are detected; a cleaned command is printed."""

import pytest

from resnet_recipes import cli
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.command_line.characters import reject_pasted
from tests.shared.checks import get_problem
from tests.shared.tables import parse_rows


def suggest_command(argv: list[str]) -> str:
    (fix,) = get_problem(RecipeError, reject_pasted, "resnet-train", argv).corrections
    return fix


@pytest.mark.parametrize(
    ("typed", "command"),
    parse_rows(
        """
mild data=\u201cmy images\u201d | resnet-train mild 'data=my images'
mild data=\u2018images\u2019 | resnet-train mild data=images
mild \u2013\u2013seed 3 | resnet-train mild --seed 3
mild \u2014seed 3 | resnet-train mild --seed 3
mild data=x\u00a0seed=3 | resnet-train mild data=x seed=3
mild l\u200br=1 | resnet-train mild lr=1
mild ~methods.ema\u200b | resnet-train mild '~methods.ema'
mild lr=1e\u22123 | resnet-train mild lr=1e-3
mild lr=\u20111 | resnet-train mild lr=-1
$ resnet-train mild | resnet-train mild
$ resnet-recipes runs | resnet-recipes runs
mild lr=1 # the rate | resnet-train mild lr=1
"""
    ),
)
def test_pasted_characters_are_cleaned(typed, command):
    assert suggest_command(typed.split(" ")) == command


def test_pasted_line_continuation_is_ignored():
    assert suggest_command(["mild", " ", "data=x"]) == "resnet-train mild data=x"


@pytest.mark.parametrize("typed", ["run=l\u2019\u00e9t\u00e9", "data=caf\u00e9", "data=my images"])
def test_accents_and_spaces_in_values_are_accepted(typed):
    reject_pasted("resnet-train", ["mild", typed])


def test_existing_folder_with_pasted_characters_is_accepted(tmp_path):
    (folder := tmp_path / "my\u00a0images \u201c2\u201d").mkdir()
    reject_pasted("resnet-train", ["mild", f"data={folder}"])
    reject_pasted("resnet-recipes", ["doctor", "data", str(folder)])


def test_invisible_character_is_shown_as_code(capsys):
    assert cli.train(["mild", "l\u200br=1"]) == 2
    assert "l\\u200br=1 contains an invisible character" in capsys.readouterr().err

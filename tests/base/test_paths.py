"""Typed paths are parsed, and addresses are rejected with a command that copies them."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.paths import parse_new_path, parse_path
from tests.shared.checks import get_problem
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("text", "copy"),
    [
        ("s3://bucket/a b", "aws s3 sync 's3://bucket/a b' local"),
        ("GS://bucket/a", "gcloud storage rsync -r GS://bucket/a local"),
        ("memory://a", "copy the images to a local folder, and pass that"),
    ],
)
def test_parse_path_rejects_addresses_with_a_copy_command(text, copy):
    problem = get_problem(RecipeError, parse_path, "data", text)
    assert (problem.key, problem.value) == ("data", text)
    assert problem.advice[0] == copy
    assert "is an address" in problem.clause


@pytest.mark.parametrize("text", ["C:/images", "a:b", "/data//images", "s3:/a"])
def test_parse_path_accepts_names_with_colons(text):
    assert str(parse_path("data", text)) == text.replace("//", "/")


@pytest.mark.parametrize("text", ["hf:user/cats", "hf://datasets/user/cats"])
def test_parse_path_rejects_hub_names_with_download_command(text):
    with pytest.raises(RecipeError, match="hf download user/cats --repo-type dataset"):
        parse_path("data.root", text)


@pytest.mark.parametrize(
    ("name", "kind", "free"),
    parse_rows(
        """
new.csv | file |
new | folder |
old.csv | file | old3.csv
new.onnx | folder | new
old.csv | folder | old
. | folder | 2
"""
    ),
)
def test_existing_output_path_is_rejected_with_free_name(name, kind, free, tmp_path, monkeypatch):
    is_folder = kind == "folder"
    monkeypatch.chdir(tmp_path)
    for place in ("old.csv", "old2.csv"):
        Path(place).touch()
    if not free:
        assert parse_new_path("--out", name, is_folder) == Path(name)
        return
    problem = get_problem(RecipeError, parse_new_path, "--out", name, is_folder)
    assert problem.fix == f"--out {free}"
    assert parse_new_path("--out", free, is_folder) == Path(free)


def test_unsupported_address_lists_the_supported_ones():
    with pytest.raises(RecipeError, match="s3://, gs://, https://, http://"):
        parse_path("data.root", "ftp://host/images")

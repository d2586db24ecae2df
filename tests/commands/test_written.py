"""Files that flags name, which may be links or devices."""

import os

import pytest

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.commands.arguments import Usage, split
from resnet_recipes.commands.written import opened_file


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with opened_file("--csv", str(tmp_path / "link")) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_a_killed_command_left_of_the_same_file_is_deleted(tmp_path):
    left, other = (tmp_path / f"{name}.{16 * 'f'}.part" for name in ("a.csv", "b.csv"))
    left.touch()
    other.touch()
    with opened_file("--csv", str(tmp_path / "a.csv")) as file:
        file.write(b"new")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.csv", other]


def test_a_special_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with (
        pytest.raises(NotReadyError, match=r"--csv=.*fifo: cannot be written: Not a regular file"),
        opened_file("--csv", str(tmp_path / "fifo")),
    ):
        pass


def test_a_missing_folder_is_found_before_the_work_and_after_what_is_wrong_with_the_words(tmp_path):
    usage = Usage("resnet-recipes x", "", "", {"--csv FILE.csv": "", "--json": ""})
    missing = str(tmp_path / "none" / "a.csv")
    with pytest.raises(NotReadyError, match=r"its folder does not exist\n.*mkdir -p"):
        split(["--csv", missing], usage)
    with pytest.raises(RecipeError, match="--jsn: unknown flag"):
        split(["--csv", missing, "--jsn"], usage)

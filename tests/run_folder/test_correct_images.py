"""Per-image flags are written and read back, for any content of the file."""

import json

import pytest

from resnet_recipes.run_folder.correct_images import CorrectImages


@pytest.mark.parametrize("flags", ["0", "1", "0010110", "00000001", "0" * 12, "1" * 13])
def test_correct_images_written_are_read_back(flags, tmp_path):
    CorrectImages("d", flags).write(tmp_path)
    assert CorrectImages.read(tmp_path) == CorrectImages("d", flags)


def test_correct_images_without_file_are_none(tmp_path):
    assert CorrectImages.read(tmp_path) is None


@pytest.mark.parametrize(
    "damage", [{"flags": "-1"}, {"flags": "012"}, {"flags": ""}, {"flags": 101}, {"digest": None}]
)
def test_damaged_correct_images_are_none(damage, tmp_path):
    content = {"digest": "d", "flags": "100000"}
    (tmp_path / "hits.json").write_text(json.dumps(content))
    assert CorrectImages.read(tmp_path) == ("d", "100000")
    (tmp_path / "hits.json").write_text(json.dumps(content | damage))
    assert CorrectImages.read(tmp_path) is None

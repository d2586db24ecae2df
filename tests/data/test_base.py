"""The facts of a run's data in its folder: what was written, or a refusal."""

import json
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig, DataFacts

FACTS = DataFacts("ffcv", Path("/data"), 37, 11, ("ant", "b\u00e9e"), ("a note",), "one", "two")


def test_facts_are_read_as_they_were_written_but_for_their_notes(tmp_path):
    (tmp_path / "data.json").write_text(FACTS.to_json())
    found = DataFacts.read(tmp_path / "data.json", "/elsewhere")
    assert found == DataFacts(
        "ffcv", Path("/elsewhere"), 37, 11, ("ant", "b\u00e9e"), (), "one", "two"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"backend": "auto"},
        {"train_examples": True},
        {"classes": [1]},
        {"more": 1},
        {"eval_digest": None},
    ],
)
def test_what_is_not_such_a_file_is_refused(tmp_path, change):
    (tmp_path / "data.json").write_text(json.dumps(json.loads(FACTS.to_json()) | change))
    with pytest.raises(NotReadyError, match=r"data\.json: cannot be read"):
        DataFacts.read(tmp_path / "data.json", "/data")


@pytest.mark.parametrize("text", ["", "[]", "[" * 10**5, "{}", "\udc80"])
def test_text_that_is_not_such_json_is_refused(tmp_path, text):
    (tmp_path / "data.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(NotReadyError):
        DataFacts.read(tmp_path / "data.json", "/data")


def test_images_of_another_size_are_resized_in_proportion_to_the_nearest_pixel():
    config = DataConfig(eval_size=224, eval_resize=232)
    assert {size: config.resize_for(size) for size in (224, 100)} == {224: 232, 100: 104}

"""Data facts in the run folder are read as written or rejected; and normalization."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from resnet_recipes.base.errors import Note, NotReadyError, Value
from resnet_recipes.data.base import (
    MEAN,
    STD,
    DataConfig,
    DataFacts,
    Normalization,
    normalize,
    relate_normalizations,
)

FACTS = DataFacts(
    "ffcv", Path("/data"), 37, 11, ("ant", "b\u00e9e"), (Note("a note"),), "one", "two"
)


def test_data_facts_round_trip_without_notes(tmp_path):
    (tmp_path / "data.json").write_text(FACTS.to_json())
    facts_read = DataFacts.read(tmp_path / "data.json", "/elsewhere")
    assert facts_read == DataFacts(
        "ffcv", Path("/elsewhere"), 37, 11, ("ant", "b\u00e9e"), (), "one", "two"
    )


@pytest.mark.parametrize(
    "text",
    [
        *(
            json.dumps(json.loads(FACTS.to_json()) | change)
            for change in (
                {"backend": "auto"},
                {"train_examples": True},
                {"classes": [1]},
                {"more": 1},
                {"eval_digest": None},
            )
        ),
        "",
        "[]",
        "[" * 10**5,
        "\udc80",
    ],
)
def test_data_facts_reject_file_of_another_structure(tmp_path, text):
    (tmp_path / "data.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(NotReadyError, match=r"data\.json cannot be read"):
        DataFacts.read(tmp_path / "data.json", "/data")


def test_differences_of_data_facts_are_listed():
    other = replace(FACTS, classes=("ant", "c"))
    assert FACTS.describe_differences(FACTS) == ""
    assert FACTS.describe_differences(other) == "classes"
    other = replace(other, eval_digest="x")
    assert FACTS.describe_differences(other) == "validation images and classes"
    other = replace(other, train_digest="y")
    text = "training images, validation images and classes"
    assert FACTS.describe_differences(other) == text


def test_eval_resize_keeps_proportion_for_other_sizes():
    config = DataConfig(eval_size=224, eval_resize=232)
    assert {size: config.resize_for(size) for size in (224, 100)} == {224: 232, 100: 104}


@pytest.mark.parametrize(("size", "resize"), [(224, 256), (256, 292), (1000, 1024)])
def test_data_suggests_resize_for_larger_crop(size, resize):
    config = DataConfig(root="images", eval_size=size, eval_resize=size - 1)
    (problem,) = config.problems()
    assert problem.corrections == (Value(resize),)
    assert not list(replace(config, eval_resize=resize).problems())


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_normalize_gives_published_values_channels_last(memory):
    values = torch.tensor([0, 128, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    images = normalize(values.expand(3, 3, 7, 9).contiguous(memory_format=memory))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images.dtype == torch.float32
    expected = [-2.11790, -2.03571, -1.80444, 0.07406, 0.20518, 0.42649, 2.24891, 2.42857, 2.64]
    assert images[:, :, 3, 4].flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_normalize_uses_the_given_mean_and_std():
    mean = (127.5, 100.0, 0.0)
    std = (127.5, 50.0, 255.0)
    pixels = torch.tensor([[0, 128, 255], [10, 100, 60]], dtype=torch.uint8).view(2, 3, 1, 1)
    actual = normalize(pixels, mean, std).flatten().tolist()
    assert actual == pytest.approx([-1, 0.56, 1, -0.921569, 0, 0.235294], abs=1e-5)
    again = normalize(
        normalize(pixels),
        *relate_normalizations(Normalization(mean, std), Normalization(MEAN, STD)),
    )
    assert again.flatten().tolist() == pytest.approx(actual, abs=1e-5)


def test_levels_divided_by_255_are_rejected():
    config = DataConfig(root="a", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    assert [problem.key for problem in config.problems()] == ["std"] * 3 + ["mean"]


def test_mean_divided_by_255_suggests_levels():
    (problem,) = DataConfig(root="a", mean=(0.5, 0.4, 0.2)).problems()
    assert (problem.key, problem.corrections) == ("mean", (Value("[127.5,102,51]"),))
    assert [*DataConfig(root="a", mean=(0, 0, 0)).problems()] == []

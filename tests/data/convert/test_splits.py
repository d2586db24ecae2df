"""What an interrupted conversion must find unchanged to go on."""

import shutil

import pytest

from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.forecast import forecast
from resnet_recipes.data.convert.run import convert

RAW = ConvertOptions("raw", workers=1)


def test_an_interrupted_conversion_of_a_source_that_has_changed_begins_anew(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("resnet_recipes.data.convert.pool._CHUNK", 4)
    source, target = tmp_path / "train", tmp_path / "a.beton"
    shutil.copytree(folder / "train", source)

    def interrupt(done, total):
        if done >= 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, target, RAW, interrupt)
    assert forecast(source, target, RAW).resumed_images == 16
    path = next(source.glob("*/*"))
    path.write_bytes(path.read_bytes() + b" ")
    assert forecast(source, target, RAW).resumed_images == 0

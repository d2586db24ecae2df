"""FFCV reads files written here, and its files are read here."""

import itertools
import os
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.text import do_nothing
from resnet_recipes.data import open_eval, survey_images
from resnet_recipes.data.beton import JPEG, RAW, open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.order import shuffle
from tests.data.loaders import ONE_RANK, make_small_config, train_pixels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ffcv,
    pytest.mark.skipif(find_spec("ffcv") is None, reason="ffcv is not installed"),
]

READS = """
import sys
from ffcv.memory_managers import OSCacheManager
from ffcv.reader import Reader
reader = Reader(sys.argv[1])
pages = OSCacheManager(reader).page_to_samples
samples = sum(map(len, pages.values()))
print(sorted(reader.field_names), reader.num_samples, samples, *reader.metadata["f1"].tolist())
"""

DECODES = """
import sys
import numpy as np
from ffcv.libffcv import imdecode
from ffcv.reader import Reader
for name in ("train.beton", "train.half.beton"):
    path = f"{sys.argv[1]}/{name}"
    reader, content = Reader(path), np.fromfile(path, np.uint8)
    ends = {int(row["ptr"]): int(row["ptr"] + row["size"]) for row in reader.alloc_table}
    fields = [("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")]
    for image in reader.metadata["f0"].view(np.dtype(fields, align=False)):
        height, width, start = int(image["height"]), int(image["width"]), int(image["ptr"])
        pixels = np.empty((height, width, 3), np.uint8)
        stored, size = content[start:ends[start]], (height, width)
        assert imdecode(stored, pixels, *size, *size, 0, 0, 1, 1, False, False) == 0
        print(pixels.mean())
"""

#: Image and label depend on the index.
WRITES = """
import sys
import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter

class Dataset:
    def __len__(self):
        return 37
    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (4, 4, 3), np.uint8)
        return pixels.repeat(8, 0).repeat(8, 1), index % 3

for name, mode in (("train", "proportion"), ("val", "raw")):
    fields = {"image": RGBImageField(mode), "label": IntField()}
    writer = DatasetWriter(f"{sys.argv[1]}/{name}.beton", fields, num_workers=2)
    writer.from_indexed_dataset(Dataset(), chunksize=5)
"""


@pytest.fixture
def ffcv(forks, tmp_path):
    """Run a script in a separate process: importing FFCV changes the torch thread count."""

    def run(script: str, place: Path) -> str:
        (tmp_path / "with_ffcv.py").write_text(script)
        interpreted = os.environ | {"NUMBA_DISABLE_JIT": "1"}  # compiling takes seconds
        process = forks.run(tmp_path, "with_ffcv", str(place), environment=interpreted)
        code, out, err = process.wait()
        assert code == 0, err
        return out

    return run


def test_ffcv_reads_our_files(betons, ffcv):
    labels = " ".join(map(str, open_beton(betons / "train.beton").labels.tolist()))
    output = ffcv(READS, betons / "train.beton").strip()
    assert output == f"['image', 'label'] 37 37 {labels}"


def test_ffcv_decodes_both_levels(image_folder, ffcv, tmp_path):
    convert(image_folder, tmp_path, ConvertOptions("jpg", levels=2, workers=1), do_nothing)
    full, half = np.array(ffcv(DECODES, tmp_path).split(), float).reshape(2, 37)
    assert full.std() > 5
    assert np.abs(full - half).max() < 4  # same images


def test_files_of_ffcv_are_read(ffcv, tmp_path):
    ffcv(WRITES, tmp_path)
    whole = {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "flip": False}
    settings = make_small_config(tmp_path, "ffcv", eval_resize=32, **whole)
    facts = survey_images(settings)
    assert (facts.train_examples, facts.eval_examples, facts.classes) == (37, 37, ("0", "1", "2"))
    assert "has no sidecar" in str(facts.notes)
    drawn = [
        np.random.default_rng(index).integers(0, 256, (4, 4, 3), np.uint8) for index in range(37)
    ]
    images = np.array(drawn).repeat(8, 1).repeat(8, 2)
    with closing(open_eval(settings, facts, ONE_RANK)) as loader:
        batches = [
            (batch.pixels.numpy().copy(), batch.labels.tolist()) for batch in loader.batches()
        ]
    pixels, labels = zip(*batches, strict=True)
    assert [*itertools.chain(*labels)] == [index % 3 for index in range(37)]
    assert np.array_equal(np.concatenate(pixels).transpose(0, 2, 3, 1), images)
    modes = open_beton(tmp_path / "train.beton").modes
    assert {*modes} == {JPEG, RAW}
    order = shuffle(ONE_RANK.seed, 0, 37)[:36]
    for image, index in zip(train_pixels(settings, 3), order, strict=True):
        difference = np.abs(image.transpose(1, 2, 0).astype(int) - images[index])
        # JPEG gives under 10; another image or BGR over 40
        assert difference.max() == 0 if modes[index] == RAW else difference.mean() < 20

"""The typical size of the images of a run."""

from PIL import Image

from resnet_recipes.data import survey_images
from resnet_recipes.data.base import DataConfig
from resnet_recipes.jobs.candidates import find_typical_size


def test_typical_size_is_median_of_sixteen_images(tmp_path):
    """Of 31 images, every other one is measured: eight of 300 and eight of 200 pixels."""
    sizes = [(300, 500), (40, 40), (640, 200), (40, 40)]
    for index in range(31):
        name = "ab"[index > 15]
        for split in ("train", "val"):
            (tmp_path / split / name).mkdir(parents=True, exist_ok=True)
            Image.new("L", sizes[index % 4]).save(tmp_path / split / name / f"{index:02}.png")
    config = DataConfig(root=str(tmp_path))
    assert find_typical_size(config, survey_images(config)) == 250


def test_typical_size_skips_images_beyond_limit(tmp_path, recwarn):
    for name, size in {"a": (60, 50), "b": (10_000, 9_500), "c": (20_000, 12_000)}.items():
        for split in ("train", "val"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("1", size).save(tmp_path / split / name / "1.png")
    config = DataConfig(root=str(tmp_path))
    facts = survey_images(config)
    recwarn.clear()
    assert find_typical_size(config, facts) == 50
    assert not [text for text in (str(w.message) for w in recwarn) if "Image size" in text]

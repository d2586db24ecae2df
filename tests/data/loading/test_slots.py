"""The workers of loaders are a fair fraction of the cores."""

from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.loading import slots


@pytest.fixture(autouse=True)
def _assume_8_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assume a machine with eight cores, no GPU and no launcher."""
    monkeypatch.setattr(slots, "count_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def format_loader_notes(root: Path, workers: int | str, backend: str = "torchvision") -> str:
    config = DataConfig(backend=backend, root=str(root), workers=workers)
    return str(data.survey_images(config).notes)


def test_workers_split_cores_unless_recipe_sets_them(monkeypatch):
    assert [slots.count_workers(DataConfig(), ranks) for ranks in (1, 2, 3, 9)] == [8, 4, 2, 1]
    assert [slots.count_workers(DataConfig(workers=number), 2) for number in (0, 64)] == [0, 64]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert slots.count_workers(DataConfig(), 1) == 2


def test_more_workers_than_cores_are_noted(image_folder, betons):
    for notes in (format_loader_notes(image_folder, 64), format_loader_notes(betons, 64, "ffcv")):
        assert "data.workers=64 is more than the 8 cores of this machine" in notes
        assert "fix='data.workers=8'" in notes
    assert "cores" not in format_loader_notes(image_folder, 8) + format_loader_notes(
        image_folder, "auto"
    ) + format_loader_notes(image_folder, 0)


@pytest.mark.parametrize("launched", [True, False])
def test_workers_count_local_ranks_or_gpus(image_folder, monkeypatch, launched):
    if launched:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    else:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert (
        "data.workers=3 for each of 4 ranks is more than the 8 cores of this machine"
        in format_loader_notes(image_folder, 3)
    )
    assert "fix='data.workers=2'" in format_loader_notes(image_folder, 3)
    assert "cores" not in format_loader_notes(image_folder, 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "9")  # more ranks than cores: one worker each
    assert "cores" not in format_loader_notes(image_folder, 1)
    assert "fix='data.workers=1'" in format_loader_notes(image_folder, 2)

"""The listing of a split is the same whether fresh or cached, and never outdated."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files import Files, listing
from resnet_recipes.data.files.listing import Listing, get_cache_path
from tests.data.loaders import CLASSES, ONE_RANK, make_small_config
from tests.shared.checks import get_problem


@pytest.fixture
def listed_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a dataset with cached listings, in a separate cache, although it is small and new."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(listing, "_MIN_CACHED_IMAGES", 1)
    monkeypatch.setattr(listing, "_SETTLING_NANOSECONDS", 0)
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            place = tmp_path / "images" / split / name
            (place / "deep").mkdir(parents=True)
            for number in range(3):
                (place / f"{number}.jpg").write_bytes(bytes(number))
            (place / "deep" / "inner.png").touch()
    return tmp_path / "images"


def list_names_and_sizes(listing: Listing) -> list[tuple[str, int]]:
    return list(zip(listing.names, listing.sizes.tolist(), strict=True))


EXPECTED = [
    (f"{name}/{file}", size)
    for name in ("ant", "bee")
    for file, size in (("0.jpg", 0), ("1.jpg", 1), ("2.jpg", 2), ("deep/inner.png", 0))
]


def test_cached_listing_equals_the_original(listed_dataset):
    first = Listing.of(listed_dataset / "train")
    second = Listing.of(listed_dataset / "train")
    assert (first.is_cached, second.is_cached) == (False, True)
    assert list_names_and_sizes(first) == list_names_and_sizes(second) == EXPECTED
    assert first.digest == second.digest
    assert (second.classes, second.counts.tolist()) == (("ant", "bee"), [4, 4])


@pytest.mark.parametrize(
    "command",
    [
        "touch bee/new.jpg",
        "rm bee/1.jpg",
        "mv bee/1.jpg bee/one.jpg",
        "echo more > other; mv other bee/1.jpg",
        "touch bee/deep/new.jpg",
        "mkdir cow",
    ],
)
def test_folder_change_is_seen_with_old_mtime(listed_dataset, command):
    split = listed_dataset / "train"
    before = Listing.of(split)
    times = {folder: os.stat(folder) for folder, *_ in os.walk(split)}
    subprocess.run(command, shell=True, cwd=split, check=True)
    for folder, status in times.items():
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = Listing.of(split)
    assert not after.is_cached
    assert command == "mkdir cow" or after.digest != before.digest


def test_hundred_nested_folders_are_rejected(listed_dataset):
    (listed_dataset / "train" / ("a/" * 102)).mkdir(parents=True)
    with pytest.raises(OSError, match="More than 100 nested folders"):
        Listing.of(listed_dataset / "train")


def test_listing_of_changing_folder_is_not_cached(listed_dataset, monkeypatch):
    monkeypatch.setattr(listing, "_SETTLING_NANOSECONDS", 60 * 10**9)
    assert not Listing.of(listed_dataset / "train").is_cached
    assert not get_cache_path(listed_dataset / "train").exists()


def test_listing_rejects_unreadable_size(listed_dataset, monkeypatch):
    class Entry:
        def stat(self):
            raise OSError(
                errno.EIO, os.strerror(errno.EIO), str(listed_dataset / "train/ant/0.jpg")
            )

    walk = listing.walk
    monkeypatch.setattr(listing, "walk", lambda *args: [(name, Entry()) for name, _ in walk(*args)])
    problem = get_problem(NotReadyError, data.survey_images, DataConfig(root=str(listed_dataset)))
    assert "ant/0.jpg" in f"{problem.key}={problem.value}"
    assert problem.clause == "cannot be read: Input/output error"


def test_listing_gives_a_dead_link_no_size(listed_dataset):
    (listed_dataset / "train/ant/0.jpg").unlink()
    (listed_dataset / "train/ant/0.jpg").symlink_to("nowhere.jpg")
    assert list_names_and_sizes(Listing.of(listed_dataset / "train"))[0] == ("ant/0.jpg", -1)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY\x01\x00"])
def test_damaged_listing_cache_is_ignored(listed_dataset, content):
    Listing.of(listed_dataset / "train")
    get_cache_path(listed_dataset / "train").write_bytes(content)
    assert list_names_and_sizes(Listing.of(listed_dataset / "train")) == EXPECTED


def test_unwritable_cache_folder_is_reported(listed_dataset, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    messages = []
    assert list_names_and_sizes(Listing.of(listed_dataset / "train", messages.append)) == EXPECTED
    assert "cannot cache the listing in /dev/null/nowhere/resnet-recipes" in messages[0]


def test_small_datasets_are_not_cached(listed_dataset, monkeypatch):
    monkeypatch.undo()
    assert not Listing.of(listed_dataset / "train").is_cached
    assert not Listing.of(listed_dataset / "train").is_cached


def test_facts_report_cached_listing_and_digest(listed_dataset):
    config = make_small_config(listed_dataset)
    first = data.survey_images(config)
    second = data.survey_images(config)
    assert "using the cached listing" in "".join(second.details)
    assert "cached listing" not in "".join(first.details)
    assert first.digest == second.digest
    (listed_dataset / "val" / "ant" / "0.jpg").write_bytes(b"more")
    (listed_dataset / "val" / "ant").touch()
    changed = data.survey_images(config)
    assert changed.train_digest == first.train_digest
    assert changed.digest != first.digest


def test_file_changed_in_place_is_named(listed_dataset):
    config = make_small_config(listed_dataset)
    Listing.of(listed_dataset / "val")
    (listed_dataset / "val" / "ant" / "0.jpg").write_bytes(
        b"more"
    )  # does not change the folder's time
    facts = data.survey_images(config)
    with pytest.raises(
        TrainingError, match=r"ant/0\.jpg.*has 4 bytes, but had 0 when it was listed"
    ):
        next(iter(data.open_eval(config, facts, ONE_RANK).batches()))


def test_files_are_sorted_by_class_and_name(copied_images):
    (copied_images / "train" / "bee" / "a b\n\u00e9.jpg").touch()
    files = Files(Listing.of(copied_images / "train"))
    paths = [Path(files.path(index)) for index in range(len(files))]
    assert paths == [
        path for name in CLASSES for path in sorted((copied_images / "train" / name).iterdir())
    ]
    assert [path.parent.name for path in paths] == [CLASSES[label] for label in files.labels]

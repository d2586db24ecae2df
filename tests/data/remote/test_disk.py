"""Copies go to a local disk with enough space, and never to a folder of another user."""

import os
import tempfile
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.remote import disk


@pytest.fixture
def copy_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The two locations of copies: the user's cache, and the folder for temporary files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    temporary = tmp_path / "tmp" / f"resnet-recipes-{os.getuid()}"
    return tmp_path / "cache" / "resnet-recipes" / "data", temporary


@pytest.fixture(autouse=True)
def mounts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Mounted file systems, which a test can change; at first all folders are on a local disk."""
    file_systems: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "_iterate_mounts", lambda: file_systems)
    return file_systems


def test_existing_copy_of_remote_images_keeps_its_folder(copy_locations):
    cache, temporary = copy_locations
    assert disk.choose_folder("", "set", "v.part", 1000) == cache / "set"
    (temporary / "set").mkdir(parents=True)
    assert disk.choose_folder("", "set", "v.part", 1000) == temporary / "set"
    assert disk.find_copy("", "set") == temporary / "set"
    assert disk.find_copy("", "other") is None


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "tmpfs", "ramfs"])
def test_network_disk_gets_the_copy_only_if_named(copy_locations, mounts, tmp_path, kind):
    device = os.stat(tmp_path).st_dev
    (copy_locations[1]).mkdir()
    mounts.append((f"{os.major(device)}:{os.minor(device)}", kind))
    assert not disk.is_local(copy_locations[1])
    assert (
        disk.choose_folder(str(tmp_path / "named"), "set", "v.part", 1)
        == tmp_path / "named" / "set"
    )


def test_is_local_rejects_a_linked_folder(copy_locations, tmp_path):
    (tmp_path / "theirs").mkdir()
    copy_locations[1].symlink_to(tmp_path / "theirs")
    assert not disk.is_local(copy_locations[1])


@pytest.mark.parametrize("kind", ["link", "file", "open", "theirs"])
def test_copy_folder_writable_by_others_is_rejected(kind, tmp_path, monkeypatch):
    home = tmp_path / "cache" / "set"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.parent.mkdir()
    if kind == "link":
        home.symlink_to(elsewhere)
    elif kind == "file":
        home.touch()
    else:
        home.mkdir()
        home.chmod(0o777 if kind == "open" else 0o755)
    if kind == "theirs":
        us = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: us + 1)
    with pytest.raises(NotReadyError, match=r"data\.cache=.*set must be your own folder"):
        disk.make_folder(home)
    if kind != "file":
        with pytest.raises(NotReadyError, match="must be your own folder"):
            disk.find_copy(str(home.parent), "set")
    assert not [*elsewhere.iterdir()]


def test_fetched_files_need_no_more_space(copy_locations, set_free_space):
    part = copy_locations[0] / "set" / "v.part"
    part.mkdir(parents=True)
    (part / "train.beton").write_bytes(bytes(1 << 20))
    set_free_space(1 << 16)
    assert disk.choose_folder("", "set", "v.part", 1 << 20) == copy_locations[0] / "set"
    with pytest.raises(NotReadyError, match=r"has 65\.5 kB free, and the copy needs"):
        disk.choose_folder("", "set", "w.part", 1 << 20)

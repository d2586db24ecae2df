"""Remote images are fetched once, completely and from one version, whatever the server does."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import urllib3
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base import paths
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.base.text import format_bytes
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.data.remote import base, local_copy, stores
from tests.data.loaders import explain_rejected_images
from tests.data.remote.web_server import Site, serve_folder
from tests.shared.checks import get_error
from tests.shared.tables import parse_rows

FILES = ["train.beton", "train.beton.json", "val.beton", "val.beton.json"]
PIECE_BYTES = 1 << 17  # bytes


@pytest.fixture(autouse=True)
def _read_small_pieces_without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small pieces, few at a time; no delays between attempts or for the disk."""
    monkeypatch.setattr(local_copy, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(local_copy, "PARALLEL_REQUESTS", 4)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(base.Store, "waits", (0.0, 0.0))


@pytest.fixture
def origin(betons: Path, tmp_path: Path) -> Path:
    """A separate folder of .beton files to serve."""
    return Path(shutil.copytree(betons, tmp_path / "origin"))


@pytest.fixture
def site(origin: Path) -> Iterator[type[Site]]:
    with serve_folder(origin) as handler:
        yield handler


@pytest.fixture
def config(site: type[Site], tmp_path: Path) -> DataConfig:
    """Settings of a run whose images are on the server."""
    return DataConfig(root=site.address, cache=str(tmp_path / "cache"))


def fetch_folder(config: DataConfig) -> Path:
    local = data.fetch(config)
    assert local is not None
    return Path(local.root)


def explain_failed_fetch(config: DataConfig) -> str:
    return explain_rejected_images(config, data.fetch)


def list_requested_ranges(site: type[Site]) -> list[str]:
    return [request for request in site.asked if request.startswith("GET")]


def fetch_until(config: DataConfig, pieces: int) -> None:
    """Fetch, and stop after about this number of pieces."""
    counts: list[int] = []
    folder = data.fetch(config, lambda done, _: counts.append(done), lambda: len(counts) > pieces)
    assert folder is None


def write_sums(folder: Path) -> None:
    """Write a checksum file as users do."""
    subprocess.run("sha256sum * > SHA256SUMS", shell=True, cwd=folder, check=True)


def test_copy_equals_original_and_is_fetched_once(config, site, origin):
    assert data.fetch(config, stopped=lambda: True) is None
    assert not list_requested_ranges(site)
    copied_images = fetch_folder(config)
    assert {path.name: path.read_bytes() for path in copied_images.iterdir()} == {
        name: (origin / name).read_bytes() for name in FILES
    }
    pieces = sum(-(-(origin / name).stat().st_size // PIECE_BYTES) for name in FILES)
    assert len(list_requested_ranges(site)) == len({*list_requested_ranges(site)}) == pieces
    site.asked.clear()
    assert (
        fetch_folder(config) == Path(data.fetch(config, stopped=lambda: True).root) == copied_images
    )
    assert not list_requested_ranges(site)


@pytest.mark.parametrize(
    ("changes", "is_rejected"),
    [
        ([], True),
        (["data.eval_size=256"], True),
        (["data={root}"], True),  # the author of the run may have chosen the cache
        (["data={root}", "data.cache=/mine"], False),
        (["data.root={root}", "data.cache=/mine"], False),
    ],
)
def test_require_trusted_url_needs_typed_address_and_cache(changes, is_rejected, config, site):
    typed = [change.format(root=config.root) for change in changes]
    with pytest.raises(NotReadyError) if is_rejected else nullcontext() as failure:
        data.require_trusted_url(config, typed, "resnet-recipes eval a")
    if is_rejected:
        (problem,) = failure.value.problems
        assert problem.key == "data.root"
        assert f"eval a data={config.root} data.cache={config.cache}" in problem.corrections[0]
    assert not site.asked


def test_require_trusted_url_trusts_images_fetched_before(config, site):
    fetch_folder(config)
    data.require_trusted_url(config, [], "resnet-recipes eval a")
    data.require_trusted_url(replace(config, backend="synthetic", cache="/other"), [], "eval")
    with pytest.raises(NotReadyError):
        data.require_trusted_url(replace(config, root=f"{config.root}/other"), [], "eval")


def test_plan_counts_images_before_they_are_fetched(config, site, betons, monkeypatch):
    monkeypatch.setattr("resnet_recipes.data.remote._SAMPLE_SECONDS", -1.0)
    facts = data.survey_images(config)
    local = data.survey_images(DataConfig(root=str(betons)))
    assert replace(facts, root=betons, notes=()) == replace(local, notes=())
    assert "are still to be fetched before the first step" in facts.notes[0].text
    asked = len(list_requested_ranges(site))
    assert asked < sum(-(-(betons / name).stat().st_size // PIECE_BYTES) for name in FILES)
    monkeypatch.setattr("resnet_recipes.data.remote._SAMPLE_SECONDS", 1e9)
    size = sum((betons / name).stat().st_size for name in FILES)
    (note, *_) = data.survey_images(config).notes
    assert note.text.startswith(f"all {format_bytes(size)} are fetched, ")
    fetch_folder(config)
    assert "read from a copy on this machine" in data.survey_images(config).notes[0].text


@pytest.mark.parametrize("trouble", ["cuts", "stalls", "busy"])
def test_fetch_repeats_failed_requests(config, site, origin, monkeypatch, trouble):
    # a busy machine may exceed the read timeout: leave attempts for that
    monkeypatch.setattr(stores, "_TIMEOUT", urllib3.Timeout(connect=9, read=1))
    monkeypatch.setattr(base.Store, "waits", (0.0,) * 9)
    setattr(site, trouble, 2)
    assert (fetch_folder(config) / "train.beton").read_bytes() == (
        origin / "train.beton"
    ).read_bytes()


@pytest.mark.parametrize("cut", [0, 2])  # journal bytes lost in a kill
def test_stopped_fetch_continues_without_repeating(config, site, cut):
    fetch_until(config, 3)
    (journal,) = Path(config.cache).rglob("*.journal")
    os.truncate(journal, journal.stat().st_size - cut)
    before = {*list_requested_ranges(site)}
    site.asked.clear()
    fetch_folder(config)
    again = before & {*list_requested_ranges(site)}
    assert before
    assert len(again) == bool(cut)


def test_stop_does_not_wait_for_comparison(config, origin):
    write_sums(origin)
    total = sum(path.stat().st_size for path in origin.iterdir())
    megabytes = []

    def stopped() -> bool:
        return megabytes.count(total // 10**6) > 12  # complete; pieces are being compared

    assert data.fetch(config, lambda done, _: megabytes.append(done), stopped) is None
    assert (fetch_folder(config) / "train.beton").is_file()


def test_failed_fetch_keeps_fetched_files(config, site):
    fetch_until(config, 3)
    site.busy = 10_000
    assert "could not be fetched in 3 attempts: the server returned 503" in explain_failed_fetch(
        config
    )
    site.busy = 0
    site.asked.clear()
    fetch_folder(config)
    total = sum((site.folder / name).stat().st_size for name in FILES) / PIECE_BYTES
    assert len(list_requested_ranges(site)) < total


def test_fetched_copy_never_mixes_file_versions(config, site, origin):
    fetch_until(config, 3)
    new = (origin / "val.beton").read_bytes()
    (origin / "train.beton").write_bytes(new)  # a new size and ETag
    (origin / "train.beton.json").unlink()
    copied_images = fetch_folder(config)
    assert (copied_images / "train.beton").read_bytes() == new
    assert sorted(path.name for path in copied_images.parent.iterdir()) == sorted(
        [copied_images.name, "lock"]
    )


@pytest.mark.parametrize("has_etag", [True, False])
def test_file_changed_during_fetch_is_rejected(config, site, origin, has_etag):
    site.has_etag = has_etag
    path = origin / "train.beton"
    changes = []

    def change(done: int, total: int) -> None:
        if not changes and sum("train.beton " in request for request in site.asked) > 3:
            new = path.with_suffix(".new")
            changes.append(new.write_bytes(path.read_bytes()[::-1]))
            os.utime(new, (1, 1))
            new.replace(path)  # at once: a response between two changes would have a third version

    with pytest.raises(NotReadyError, match="changed while it was fetched"):
        data.fetch(config, change)
    assert changes


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("another range", "changed while it was fetched"),
        ("another version", "changes the ETag"),
        ("longer", "sent [0-9,]+ bytes instead of"),
        ("no ranges", "without HTTP range requests"),
    ],
)
def test_fetch_rejects_inconsistent_responses(config, site, fault, message):
    site.fault = fault
    assert re.search(message, explain_failed_fetch(config))


def test_content_with_wrong_digest_is_fetched_again(config, site, origin):
    write_sums(origin)
    path = origin / "val.beton"
    right = path.read_bytes()
    site.has_etag = False
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    os.utime(path, (1, 1))
    message = explain_failed_fetch(config)
    assert "val.beton has SHA256" in message
    assert "run the same command again" in message
    path.write_bytes(right)
    os.utime(path, (1, 1))
    site.asked.clear()
    assert (fetch_folder(config) / "val.beton").read_bytes() == right
    assert {request.split()[1] for request in list_requested_ranges(site)} == {
        "/val.beton",
        "/SHA256SUMS",
    }


@pytest.mark.parametrize("drops", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_fetch_times_out_on_slow_response(config, site, monkeypatch, drops):
    monkeypatch.setattr(base, "_RESPONSE_SECONDS", 0.1)
    monkeypatch.setattr(base, "_MIN_RATE", 1 << 30)
    site.drops = drops
    assert (
        "could not be fetched in 3 attempts: no complete response in 0 s"
        in explain_failed_fetch(config)
    )


@pytest.mark.parametrize(
    ("status", "moved_to", "message"),
    parse_rows(
        """
403 | - | access denied: the server returned 403
404 | - | has neither train.beton and val.beton nor a table
500 | - | could not be fetched in 3 attempts: the server returned 500
302 | http://[::1 | could not be fetched in 3 attempts
302 | file:///etc/passwd | could not be fetched in 3 attempts
"""
    ),
)
def test_fetch_reports_rejected_request(config, site, status, moved_to, message):
    site.status = int(status)
    site.moved_to = moved_to
    assert message in explain_failed_fetch(config)


def test_unreachable_server_is_named_with_reason(config, origin):
    message = explain_failed_fetch(replace(config, root="http://127.0.0.1:1/images"))
    assert "could not be fetched in 3 attempts" in message
    assert "Connection refused" in message
    (origin / "train.beton").write_bytes(b"")
    assert "train.beton is empty" in explain_failed_fetch(config)


def test_server_error_text_is_shortened():
    store = base.Store("http://x")
    store._describe_file = Mock(side_effect=PermissionError("x\n" * 60_000))
    error = get_error(NotReadyError, store.describe, "a")
    assert len(str(error)) < 500


def test_plan_rejects_password_in_address(config, site):
    address = site.address.replace("://", "://me:secret@")
    with pytest.raises(RecipeError, match="without password"):
        data.survey_images(replace(config, root=address))
    assert not site.asked


def test_full_disk_is_rejected_before_fetch(config, site, set_free_space):
    set_free_space(4096)
    message = explain_failed_fetch(config)
    assert "has 4.1 kB free, and the copy needs" in message
    assert message.endswith("hint:  set data.cache to another folder")
    assert not list_requested_ranges(site)


def test_processes_of_one_machine_fetch_once(config, site):
    with ThreadPoolExecutor(3) as pool:
        assert len({*pool.map(fetch_folder, [config] * 3)}) == 1
    assert len(list_requested_ranges(site)) == len({*list_requested_ranges(site)})


@pytest.fixture
def table(origin: Path, site: type[Site], config: DataConfig) -> DataConfig:
    (origin / "img").mkdir()
    lines = ["path,label,split"]
    for number in range(8):
        name = f"img/a b%{number}.png"
        Image.new("RGB", (20, 30), (number, 0, 0)).save(origin / name)
        lines.append(f"{name},{'xy'[number % 2]},{'train' if number < 4 else 'val'}")
    (origin / "labels.csv").write_text("\n".join(lines) + "\n")
    return replace(config, root=f"{site.address}/labels.csv")


def test_remote_table_fetches_its_images(table, origin):
    facts = data.survey_images(table)
    local = data.survey_images(replace(table, root=str(origin / "labels.csv")))
    assert facts.digest == local.digest
    copied_images = fetch_folder(table)
    assert copied_images.name == "labels.csv"
    original, copied = (
        {path.name: path.read_bytes() for path in (root / "img").iterdir()}
        for root in (origin, copied_images.parent)
    )
    assert len(original) == 8
    assert copied == original


def test_remote_tables_label_images_in_class_folders(config, origin):
    for name in FILES:
        (origin / name).unlink()
    for split in ("train", "val"):
        for folder, label in (("a", "b"), ("b", "a")):
            place = origin / split / folder
            place.mkdir(parents=True)
            Image.new("RGB", (20, 30)).save(place / "0.png")
            with (origin / f"{split}.csv").open("a") as file:
                file.write(f"{split}/{folder}/0.png,{label}\n")
    (origin / "metadata.csv").write_text("file_name,caption\ntrain/a/0.png,a sky\n")
    notes = data.survey_images(config).notes
    message = f"labels come from {config.root}/train.csv and {config.root}/val.csv"
    assert sum(message in note.text for note in notes) == 1
    listing = list_split(replace(config, root=str(fetch_folder(config))), "val")
    assert (listing.names, listing.classes) == (["val/b/0.png", "val/a/0.png"], ("a", "b"))


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "img/../../x", "a\x1b[2Jb", "a/" * 2000 + "b"]
)
def test_remote_table_rejects_files_outside_its_folder(table, origin, name):
    with (origin / "labels.csv").open("a") as file:
        file.write(f"{name},x,train\n")
    assert "names no file below its folder in line 10" in explain_failed_fetch(table)


def test_remote_table_errors_name_the_address(table, origin):
    (origin / "img" / "a b%3.png").unlink()
    message = "a b%3.png is missing (in total, 1 of the 8 files in the table)"
    assert message in explain_failed_fetch(table)
    (origin / "labels.csv").write_text("path,label\nimg/a b%1.png,\n")
    for ask in (data.fetch, data.survey_images):
        assert f"data.root={table.root} has 1 row without" in explain_rejected_images(table, ask)
    (origin / "labels.csv").write_text("path,label\nimg/a b%1.png,x\nimg/a b%2.png,y\n")
    assert f"data.root={table.root} has no validation images" in explain_rejected_images(table)


def test_plan_notes_uncompared_copies(table, origin):
    fetch_folder(table)
    Image.new("RGB", (9, 9)).save(origin / "img" / "a b%1.png")
    assert "only its table was compared" in data.survey_images(table).notes[0].text


def test_fetch_without_package_suggests_installation(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resnet_recipes.data.remote.stores", None)
    message = explain_failed_fetch(DataConfig(root="s3://bucket/images", cache=str(tmp_path)))
    assert "needs a package that is not installed" in message
    assert "[remote]" in message


def test_bucket_objects_are_read_through_fsspec(origin, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr(paths, "FETCHED_SCHEMES", ("memory",))
    memory = fsspec.filesystem("memory")
    memory.put(f"{origin}/", "/images/", recursive=True)
    config = DataConfig(root="memory://images", cache=str(tmp_path / "cache"))
    assert (fetch_folder(config) / "val.beton").read_bytes() == (origin / "val.beton").read_bytes()
    memory.pipe("/images/val.beton", (origin / "val.beton").read_bytes()[:-1])
    assert "truncated" in explain_rejected_images(config)

"""Images in memory: decoded once, with the same crops as from raw .beton files of that size."""

import itertools
import mmap
import multiprocessing
import os
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.files import Files
from resnet_recipes.data.images import memory
from resnet_recipes.data.images.memory import ShrunkImages
from resnet_recipes.methods.randaugment import RandAugment
from tests.data.augmentations import Darken
from tests.data.loaders import (
    ONE_RANK,
    convert_to_small_pages,
    copy_batches,
    make_image,
    make_small_config,
    open_training,
    requires_decoder,
)
from tests.shared.images import encode_image

LONGEST = 48  # pixels; most images are larger, some are not

RAW = ConvertOptions("raw", max_resolution=LONGEST, shuffle=False, workers=1)

STEPS = 7  # more than two epochs of 41 images in batches of 12


@pytest.fixture(scope="module")
def mixed_images(image_folder: Path, tmp_path_factory) -> Path:
    """The images of `image_folder`, small images, and images that only Python can decode."""
    root = tmp_path_factory.mktemp("mixed") / "images"
    shutil.copytree(image_folder, root)
    picture = make_image(7)
    (root / "train" / "ant" / "a.png").write_bytes(encode_image(picture, "PNG"))
    (root / "train" / "bee" / "cmyk.jpg").write_bytes(encode_image(picture.convert("CMYK")))
    (root / "train" / "bee" / "gray.jpg").write_bytes(encode_image(picture.convert("L")))
    (root / "train" / "cat" / "tiny.jpg").write_bytes(encode_image(Image.new("RGB", (3, 2), "red")))
    return root


@pytest.fixture(scope="module")
def raw_betons(mixed_images: Path, tmp_path_factory) -> Path:
    """The same images in the same order, as raw .beton files of that size."""
    return convert_to_small_pages(mixed_images, tmp_path_factory.mktemp("raw"), RAW)


def make_memory_config(root: Path, **changes) -> DataConfig:
    return make_small_config(root, memory_pixels=LONGEST, **changes)


def read_batches(
    loader: data.TrainLoader | data.EvalLoader, *first: int, count: int = STEPS
) -> list[bytes]:
    batches = copy_batches(loader.batches(*first), count)
    return [pixels.transpose(0, 2, 3, 1).tobytes() for pixels, _ in batches]


def read_crops(config: DataConfig, augment: object = None, first: int = 0, **share) -> list[bytes]:
    """Return the training crops of each step, and the evaluation crops."""
    facts = data.survey_images(config)
    mine = replace(ONE_RANK, **share)
    with (
        closing(data.open_train(config, facts, mine, augment)) as train,
        closing(data.open_eval(config, facts, mine)) as evaluation,
    ):
        return read_batches(train, first, count=STEPS - first) + read_batches(evaluation, count=99)


VARIANTS = {
    "plain": ({}, None),
    "threads": ({"workers": 2}, None),
    "reduced": ({"train_size": 16}, None),
    "bicubic": ({"interpolation": "random"}, None),
    "tensorflow": ({"crop_rule": "tensorflow"}, None),
    "randaugment": ({}, RandAugment().augment_image()),
    "in Python": ({}, Darken()),
    "in processes": ({"workers": 2}, Darken()),
    "padded": ({"fit": "pad"}, None),
    "balanced": ({"sampling": "balanced"}, None),
    "repeated": ({"repeats": 2}, None),
}


@requires_decoder
@pytest.mark.parametrize("name", VARIANTS)
def test_memory_crops_equal_raw_beton_crops(mixed_images, raw_betons, name):
    changes, augment = VARIANTS[name]
    expected = read_crops(make_small_config(raw_betons, "ffcv", **changes), augment)
    assert read_crops(make_memory_config(mixed_images, **changes), augment) == expected


@requires_decoder
def test_beton_memory_crops_equal_raw_copy(mixed_images, tmp_path):
    jpegs = ConvertOptions("jpg", shuffle=False, max_resolution=None, workers=1)
    original = convert_to_small_pages(mixed_images, tmp_path / "jpegs", jpegs)
    raw = convert_to_small_pages(original, tmp_path / "raw", RAW)
    assert read_crops(make_memory_config(original, backend="ffcv")) == read_crops(
        make_small_config(raw, "ffcv")
    )


def test_memory_crops_without_decoder_equal_raw_beton_crops(
    mixed_images, raw_betons, without_decoder, monkeypatch
):
    monkeypatch.setattr("resnet_recipes.data.native.find_decoder_fault", lambda: "was not built")
    assert read_crops(make_memory_config(mixed_images)) == read_crops(
        make_small_config(raw_betons, "ffcv")
    )


@requires_decoder
def test_memory_crops_are_equal_across_ranks_and_resumes(mixed_images):
    config = make_memory_config(mixed_images)
    whole = read_crops(config)[:STEPS]
    halves = [read_crops(config, rank=rank, world_size=2)[:STEPS] for rank in (0, 1)]
    assert [first + second for first, second in zip(*halves, strict=True)] == whole
    assert read_crops(config, first=4)[: STEPS - 4] == whole[4:]


@pytest.fixture
def copied_mixed_images(mixed_images: Path, tmp_path: Path) -> Path:
    """A copy of the images, which the test deletes."""
    return shutil.copytree(mixed_images, tmp_path / "images")


@requires_decoder
def test_image_is_decoded_once_for_two_loaders(copied_mixed_images):
    expected = read_crops(make_memory_config(copied_mixed_images))
    config = make_memory_config(copied_mixed_images, workers=2)
    with closing(open_training(config)) as first:
        read_batches(first, count=8)  # more than two epochs: every image
        with closing(open_training(config)) as second:
            for path in (copied_mixed_images / "train").glob("*/*"):
                path.write_bytes(b"x" * path.stat().st_size)
            assert read_batches(second) == expected[:STEPS]


def open_shrunk(root: Path, longest: int, name: str) -> ShrunkImages:
    """Open the training images in memory that other tests and processes do not find by name."""
    files = Files.of(make_memory_config(root), "train")
    return ShrunkImages(files, longest, f"test {name} {os.getpid()}")


def read_shrunk(source: ShrunkImages) -> list[bytes]:
    return [source.read(index).pixels().tobytes() for index in range(len(source))]


def _read_all(pickled: bytes) -> None:
    source = pickle.loads(pickled)
    for index in range(len(source)):
        source.read(index)


@requires_decoder
def test_shrunk_images_are_shared_by_name(copied_mixed_images):
    files = Files.of(make_memory_config(copied_mixed_images), "train")
    name = f"test {os.getpid()}"
    source = ShrunkImages(files, LONGEST, name)
    pickled = pickle.dumps(source)
    process = multiprocessing.get_context("fork").Process(target=_read_all, args=(pickled,))
    process.start()
    process.join()
    shutil.rmtree(copied_mixed_images / "train")
    decoded = [index for index in range(len(source)) if source._arrays["entries"][index]]
    assert len(decoded) == len(source) - 2  # Python decodes two
    assert all(source.read(index).width for index in decoded)
    another = ShrunkImages(files, LONGEST, name)  # found by name
    assert another.read(0).pixels().tobytes() == source.read(0).pixels().tobytes()


def _read_epoch(config: DataConfig, pipe: Connection) -> None:
    """Read an epoch as rank 1 of 2, and keep the loader open until a message arrives."""
    second = replace(ONE_RANK, rank=1, world_size=2)
    with closing(open_training(config, batching=second)) as loader:
        read_batches(loader, count=2 * STEPS)
        pipe.send("read")
        pipe.recv()


def _measure_kilobytes(process: int, name: str = "resnet-recipes ") -> tuple[int, int]:
    """Return the size (Rss, Pss) of a process's largest image memory, in kB."""
    maps = re.split(r"^(?=[0-9a-f]+-)", Path(f"/proc/{process}/smaps").read_text(), flags=re.M)
    return max(
        tuple(int(re.search(rf"^{key}: +(\d+)", one, re.M)[1]) for key in ("Rss", "Pss"))
        for one in maps
        if f"/memfd:{name}" in one and "memfd:resnet-recipes (" not in one
    )


@requires_decoder
def test_two_ranks_share_one_copy(mixed_images):
    config = make_small_config(mixed_images, memory_pixels=90)  # no image is larger
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read_epoch, args=(config, theirs))
    process.start()
    with closing(open_training(config, batching=replace(ONE_RANK, world_size=2))) as loader:
        read_batches(loader, count=2 * STEPS)
        assert ours.recv() == "read"
        (rss, pss), (other_rss, other_pss) = map(_measure_kilobytes, (os.getpid(), process.pid))
        ours.send("stop")
    process.join()
    assert min(rss, other_rss) > 250  # most of 41 images
    assert pss + other_pss < 1.2 * max(rss, other_rss)


@pytest.mark.parametrize(
    ("available", "kept_back"), [(10**9, 1 << 30), (4 << 30, 1 << 30), (10**12, 2 * 10**11)]
)
def test_memory_reserve_is_fifth_but_at_least_1gib(available, kept_back):
    assert memory.compute_reserve(available) == pytest.approx(kept_back)


@pytest.fixture
def free_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The free bytes of the system, with a reserve of 200,000; tests change the number."""
    left = [200_000]
    monkeypatch.setattr(memory, "MIN_RESERVE_BYTES", 200_000)
    monkeypatch.setattr(memory, "get_available_memory", lambda: left[0])
    monkeypatch.setattr(memory, "CHECK_INTERVAL_SECONDS", 0)
    return left


@requires_decoder
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("augment", [None, Darken()])
def test_images_whose_memory_was_freed_are_decoded_again(
    mixed_images, raw_betons, free_memory, workers, augment
):
    expected = read_crops(make_small_config(raw_betons, "ffcv"), augment)[:STEPS]
    config = make_memory_config(mixed_images, workers=0 if augment else workers)
    with closing(open_training(config, augment)) as loader:
        for left in (200_000, 199_999, 150_000, 99_999, 200_000, 0, 200_000):
            free_memory[0] = left
            assert read_batches(loader) == expected


@requires_decoder
def test_image_memory_is_freed_when_system_runs_short(mixed_images, free_memory):
    source = open_shrunk(mixed_images, 90, "freed")
    name = "test freed"
    expected = read_shrunk(source)
    before = _measure_kilobytes(os.getpid(), name)[0]
    assert 1000 * before > 0.9 * sum(map(len, expected)) > 300_000
    free_memory[0] = 100_000  # half of the reserve: no more images are kept
    source.read(0)
    assert _measure_kilobytes(os.getpid(), name)[0] == before
    free_memory[0] = 90_000
    source.read(0)
    free_memory[0] = 200_000
    freed = 1024 * (before - _measure_kilobytes(os.getpid(), name)[0])
    assert freed == pytest.approx(110_000, abs=2 * mmap.PAGESIZE)
    late = open_shrunk(mixed_images, 90, "freed")  # joins the existing memory
    for images in (source, late):
        assert read_shrunk(images) == expected
    assert 1024 * (before - _measure_kilobytes(os.getpid(), name)[0]) == freed


@requires_decoder
def test_image_memory_stays_after_another_process_freed(mixed_images, free_memory, monkeypatch):
    source = open_shrunk(mixed_images, 90, "twice")
    expected = read_shrunk(source)
    counts = source._arrays["counts"].tolist()
    free_bytes = iter([90_000, 200_001])  # before the lock, and after
    monkeypatch.setattr(memory, "get_available_memory", lambda: next(free_bytes, 200_001))
    assert source.read(0).pixels().tobytes() == expected[0]
    assert source._arrays["counts"].tolist() == [*counts[:2], 1, counts[3]]


@requires_decoder
def test_image_memory_is_constant_once_filled(mixed_images):
    with closing(open_training(make_memory_config(mixed_images))) as loader:
        batches = loader.batches()
        sizes = []
        for _ in range(20):
            list(itertools.islice(batches, 4))  # an epoch has 3.5 steps
            sizes.append(_measure_kilobytes(os.getpid())[0])
    assert sizes[2] > 0
    assert {*sizes[2:]} == {sizes[2]}


@requires_decoder
@pytest.mark.parametrize("left", [0, 2])
def test_images_beyond_memory_are_decoded_each_time(mixed_images, raw_betons, monkeypatch, left):
    free = itertools.chain([1 << 30] * (2 + left), itertools.repeat(0))
    monkeypatch.setattr(memory, "get_available_memory", lambda: next(free))
    monkeypatch.setattr(memory, "CHECK_INTERVAL_SECONDS", 0)
    assert read_crops(make_memory_config(mixed_images)) == read_crops(
        make_small_config(raw_betons, "ffcv")
    )


@requires_decoder
def test_exhausted_image_memory_accepts_no_more_images(mixed_images, monkeypatch):
    """A fifth of the memory that was free at first stays free for other programs."""
    free = {"bytes": 1000}
    monkeypatch.setattr(memory, "MIN_RESERVE_BYTES", 0)
    monkeypatch.setattr(memory, "get_available_memory", lambda: free["bytes"])
    monkeypatch.setattr(memory, "CHECK_INTERVAL_SECONDS", 0)
    source = open_shrunk(mixed_images, LONGEST, "closed")
    is_in_memory = []
    for index, available in enumerate((201, 198, 1000)):
        free["bytes"] = available
        source.read(index)
        is_in_memory.append(0 < source._arrays["entries"][index] < 2**64 - 1)
    assert is_in_memory == [True, False, False]


def _replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _write(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content)


#: Changes that an attacker or an accident can make to an image after it was listed.
HOSTILE = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "empty": _write(b""),
    "text": _write(b"<html>404 Not Found</html>"),
    "not there": Path.unlink,
    "FIFO": _replace_by_fifo,
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "huge": _write(encode_image(Image.new("L", (9000, 9000)), "PNG")),
    "another length": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "damaged": lambda path: path.write_bytes(path.read_bytes().replace(b"\xff\xda", b"\xff\xc4")),
}


def read_error(config: DataConfig, spoil: Callable[[], object]) -> str:
    """Return the error for an image that is changed after the loader has opened."""
    with closing(open_training(config)) as loader:
        spoil()
        try:
            read_batches(loader)
        except TrainingError as error:
            return str(error)
        return str(loader.source.skipped)


@requires_decoder
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("action", ["error", "skip"])
def test_hostile_images_fail_in_memory_as_from_files(mixed_images, tmp_path, name, action):
    root = tmp_path / "images"
    messages = []
    bad = root / "train" / "ant" / "000.jpg"
    for pixels in (0, LONGEST):
        shutil.copytree(mixed_images, root)
        config = make_small_config(root, memory_pixels=pixels, on_bad_image=action)
        messages.append(read_error(config, lambda: HOSTILE[name](bad)))
        shutil.rmtree(root)
    assert messages[0] == messages[1]
    assert str(bad) in messages[0]

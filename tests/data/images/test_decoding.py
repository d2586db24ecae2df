"""Training images decoded on a device, which is the CPU here: the pixels, order and complaints of the workers' decoder.

The tests that need nvJPEG are marked; all others run the same code, and the CPU's decoder where a
GPU has its own.
"""

import io
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images import decoding, nvjpeg
from resnet_recipes.data.images.decode import Picture
from resnet_recipes.data.images.decoding import Decoding
from resnet_recipes.data.images.encoded import EncodedTrainImages
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.loading import storage
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.loading.storage import PARCEL, Rows
from resnet_recipes.data.order import Job

CROP = TrainCrop(3, (0.08, 1.0), (0.75, 4 / 3), flip=True, interpolation="random")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def jpeg(image: Image.Image, **options) -> bytes:
    """Return an image as JPEG."""
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


@pytest.fixture
def mixed(folder: Path, tmp_path: Path) -> Path:
    """Return the training images with others between them that nvJPEG is not given."""
    shutil.copytree(folder / "train", tmp_path / "train")
    whole = Image.open(next((folder / "train").rglob("*.jpg")))
    (tmp_path / "train" / "bee" / "cmyk.jpg").write_bytes(jpeg(whole.convert("CMYK")))
    (tmp_path / "train" / "bee" / "grey.jpg").write_bytes(jpeg(whole.convert("L")))
    (tmp_path / "train" / "bee" / "progressive.jpg").write_bytes(jpeg(whole, progressive=True))
    whole.save(tmp_path / "train" / "bee" / "png.png")
    return tmp_path / "train"


def batches(
    kind: type[Pipeline],
    files: Files,
    workers: int = 0,
    side: int = 32,
    count: int = 6,
    skip_bad: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pixels and labels of batches of eleven images from one kind of pipeline."""
    images = TrainImages(files, CROP, reduce=False)
    if kind is Decoding:
        images = EncodedTrainImages(images)
    pipeline = kind(images, Capacity(workers, 2, 11, side, kind is Decoding), skip_bad)
    jobs = (
        Job(step // 4, np.arange(11 * step, 11 * step + 11) % len(files), np.arange(11) % 2, side)
        for step in range(count)
    )
    try:
        for batch in pipeline.run(jobs):
            yield batch.pixels.cpu().numpy().copy(), batch.labels.cpu().numpy().copy()
    finally:
        pipeline.close()


def same(ours: Iterator, theirs: Iterator) -> bool:
    """Return whether batches are equal to the bit."""
    return all(
        np.array_equal(a, b)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_pixels_labels_and_order_are_those_of_the_workers_decoder(mixed, workers):
    files = Files(Listing.of(mixed))
    assert same(batches(Decoding, files, workers), batches(Pipeline, files))


def test_photographs_have_the_same_pixels(photographs):
    files = Files.named([str(path.absolute()) for path in photographs])
    assert same(
        batches(Decoding, files, side=96, count=4), batches(Pipeline, files, side=96, count=4)
    )


def test_workers_hand_over_what_every_decoder_takes_and_decode_the_rest(mixed):
    files, count = Files(Listing.of(mixed)), 41
    rows = Rows(
        0,
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros((count, 16, 16, 3), np.uint8),
        np.zeros(count, np.int64),
        np.zeros(count, bool),
        np.zeros(count, PARCEL),
    )
    EncodedTrainImages(TrainImages(files, CROP)).fill(rows)
    here = {Path(files.path(row)).name for row in np.flatnonzero(rows.parcels["length"] == 0)}
    assert here == {"cmyk.jpg", "progressive.jpg", "png.png"}
    assert all(rows.pixels[rows.parcels["length"] == 0].any(axis=(1, 2, 3)))
    row = int(np.flatnonzero(rows.parcels["length"])[0])
    parcel, boxes = (
        rows.parcels[row],
        CROP.cuts(0, rows.indices, rows.copies, rows.parcels["cut"][:, :2]),
    )
    assert (
        parcel["data"][: parcel["length"]].tobytes()
        == Picture(Path(files.path(row)).read_bytes()).baseline()
    )
    assert parcel["cut"].tolist() == [
        *Image.open(files.path(row)).size[::-1],
        *boxes.boxes[row],
        boxes.mirrored[row],
        boxes.bicubic[row],
    ]


def test_a_file_without_room_is_decoded_by_its_worker(mixed, monkeypatch):
    files = Files(Listing.of(mixed))
    expected = list(batches(Pipeline, files))
    monkeypatch.setattr("resnet_recipes.data.images.encoded.ROOM", 900)
    assert same(batches(Decoding, files), expected)
    assert storage.ROOM > 900


def test_images_are_not_turned_by_their_orientation(mixed):
    plain, turned = Image.new("RGB", (60, 40), (9, 200, 90)), Image.Exif()
    turned[0x0112] = 6
    file = jpeg(plain, exif=turned)
    assert b"Exif" in file
    assert b"Exif" not in Picture(file).baseline()
    assert Picture(Picture(file).baseline()).baseline() == Picture(file).baseline()
    found = nvjpeg.decoded(
        [np.frombuffer(Picture(file).baseline(), np.uint8).copy()], torch.device("cpu")
    )[0]
    assert found.shape == (3, 40, 60)


def test_large_images_are_decoded_a_few_at_a_time(mixed, monkeypatch):
    files, calls, decoded = Files(Listing.of(mixed)), [], nvjpeg.decoded
    monkeypatch.setattr(
        nvjpeg, "decoded", lambda some, device: calls.append(len(some)) or decoded(some, device)
    )
    expected = list(batches(Decoding, files, count=1))
    assert calls == [11]
    monkeypatch.setattr(decoding, "AT_ONCE", 40_000)
    assert same(batches(Decoding, files, count=1), expected)
    assert sum(calls[1:]) == 11
    assert len(calls) > 3


class Refusing:
    """A device that decodes only images that are less than 60 pixels high, and fails otherwise."""

    def __init__(self):
        self.decoded, self.alone = nvjpeg.decoded, 0

    def __call__(self, files: list, device: torch.device) -> list:
        images = self.decoded(files, device)
        self.alone += len(files) == 1
        if any(image.shape[1] >= 60 for image in images):
            raise RuntimeError("Failed to decode batch: 5")
        return images


def test_what_the_device_refuses_is_decoded_on_the_cpu_and_the_rest_of_its_batch_on_the_device(
    mixed, monkeypatch
):
    files, device = Files(Listing.of(mixed)), Refusing()
    expected = list(batches(Pipeline, files))
    monkeypatch.setattr(nvjpeg, "decoded", device)
    assert same(batches(Decoding, files), expected)
    assert device.alone > 0


def test_an_image_of_another_size_than_its_header_says_is_refused(mixed, monkeypatch):
    files, decoded = Files(Listing.of(mixed)), nvjpeg.decoded
    expected = list(batches(Pipeline, files, count=2))
    monkeypatch.setattr(
        nvjpeg,
        "decoded",
        lambda some, device: [image.transpose(1, 2) for image in decoded(some, device)],
    )
    assert same(batches(Decoding, files, count=2), expected)


def test_a_device_without_memory_ends_the_run(mixed, monkeypatch):
    def full(some: list, device: torch.device) -> list:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(nvjpeg, "decoded", full)
    with pytest.raises(torch.OutOfMemoryError):
        next(batches(Decoding, Files(Listing.of(mixed))))


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_images_are_named_or_replaced_as_by_the_workers_decoder(mixed, workers):
    for name in ("ant/000.jpg", "cat/005.jpg"):
        whole = (mixed / name).read_bytes()
        (mixed / name).write_bytes(whole[: len(whole) // 2])
    files = Files(Listing.of(mixed))
    with pytest.raises(TrainingError, match=r"ant/000\.jpg cannot be decoded"):
        next(batches(Decoding, files, workers))
    assert same(
        batches(Decoding, files, workers, skip_bad=True), batches(Pipeline, files, skip_bad=True)
    )


def test_an_image_that_no_decoder_can_read_is_named_though_its_header_is_right(mixed):
    path = mixed / "ant" / "000.jpg"
    broken = bytearray(path.read_bytes())
    broken[broken.index(b"\xff\xc0") + 12] = 3  # a table of quantisation that is not there
    path.write_bytes(broken)
    files = Files(Listing.of(mixed))
    assert Picture(path.read_bytes()).baseline()
    with pytest.raises(TrainingError, match=r"ant/000\.jpg cannot be decoded"):
        next(batches(Decoding, files))
    assert same(batches(Decoding, files, skip_bad=True), batches(Pipeline, files, skip_bad=True))


def settings(root: Path, **changes) -> DataConfig:
    """Return settings for small images, without workers."""
    sizes = {"train_size": 32, "eval_resize": 40, "eval_size": 32, "reduced_decode": False}
    return DataConfig(
        **{"backend": "torchvision", "root": str(root), "workers": 0} | sizes | changes
    )


def test_a_run_has_the_crops_of_the_native_decoder_and_can_resume_at_any_step(folder):
    config = settings(folder)
    facts, share = data.measure(config), Share(0, 1, 12, 4, seed=5)
    taken = []
    for decode, first in (("cpu", 0), ("gpu", 0), ("gpu", 4)):
        loader = data.open_train(replace(config, decode=decode), facts, share)
        taken.append(
            [batch.pixels.clone() for batch in itertools.islice(loader.batches(first), 7 - first)]
        )
        loader.close()
    assert (
        max(int((a.int() - b.int()).abs().max()) for a, b in zip(taken[0], taken[1], strict=True))
        <= 1
    )
    assert all(map(torch.equal, taken[1][4:], taken[2]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(NotReadyError) as refused:
        data.measure(settings(tmp_path / "nowhere", decode="gpu"))
    assert [problem.key for problem in refused.value.problems] == ["data.decode", "data.root"]
    assert "data.decode=gpu: needs an NVIDIA GPU" in str(refused.value)
    assert "data.decode=cpu" in str(refused.value)


def test_facts_name_the_decoder(folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    notes = data.measure(settings(folder, decode="gpu", backend="auto")).notes
    assert any("decoded on the GPU (nvJPEG, through torch" in note for note in notes)
    assert not any("on the GPU" in note for note in data.measure(settings(folder)).notes)


def test_an_nvjpeg_that_does_not_work_is_found_with_a_test_image(monkeypatch):
    assert nvjpeg.fault(torch.device("cpu")) == ""
    decoded = nvjpeg.decoded
    monkeypatch.setattr(
        nvjpeg, "decoded", lambda *given: [255 - image for image in decoded(*given)]
    )
    assert "grey levels" in nvjpeg.fault(torch.device("cpu"))

    def missing(*given: object) -> list:
        raise RuntimeError("not compiled with nvJPEG support\nmore")

    monkeypatch.setattr(nvjpeg, "decoded", missing)
    assert nvjpeg.fault(torch.device("cpu")) == "not compiled with nvJPEG support"


@pytest.mark.gpu
@needs_gpu
def test_nvjpeg_gives_nearly_the_pixels_of_the_cpu(mixed):
    """Chroma at half resolution is enlarged by repetition there and smoothly here: how far apart is to be measured."""
    torch.cuda.init()
    files = Files(Listing.of(mixed))
    for (ours, labels), (theirs, expected) in zip(
        batches(Decoding, files, 2), batches(Pipeline, files), strict=True
    ):
        assert np.array_equal(labels, expected)
        assert 10 * np.log10(255**2 / np.square(ours.astype(float) - theirs).mean()) > 30

"""The loaders to compare, ours and peers, each as an endless iterator of batches."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import datasets, transforms
from torchvision.transforms import v2

from resnet_recipes import data
from resnet_recipes.data import native
from resnet_recipes.data.base import Batching, DataConfig, SoftLabels, normalize
from resnet_recipes.data.soft_labels import (
    choose_outputs,
    make_header,
    map_soft_labels,
    open_for_writing,
)
from resnet_recipes.methods.randaugment import RandAugment

BATCH, WORKERS = 50, 2


class LoaderInput(NamedTuple):
    """The batches requested from a loader."""

    root: Path  # folder written by `prepare`
    pixels: int


def read_with_backend(
    inputs: LoaderInput,
    backend: str,
    folder: str = "",
    augment: object = None,
    make_soft_labels: Callable[[int], object] = lambda images: None,
    memory: int = 0,
) -> Iterator:
    """Read with a backend of this package; keep images of `memory` pixels in memory."""
    config = DataConfig(
        backend=backend,
        root=str(inputs.root / folder),
        train_size=inputs.pixels,
        workers=WORKERS,
        memory_pixels=memory,
    )
    facts = data.survey_images(config)
    batching = Batching(
        0, 1, BATCH, BATCH, seed=0, soft_labels=make_soft_labels(facts.train_examples)
    )
    return data.open_train(config, facts, batching, augment).batches()


def read_in_python(inputs: LoaderInput) -> Iterator:
    """Read with the torchvision backend as if the native decoder were not built."""
    native.load_library = Mock(side_effect=native.UnavailableError("is not used here"))
    return read_with_backend(inputs, "torchvision")


def read_with_soft_labels(inputs: LoaderInput) -> Iterator:
    """Read with the torchvision backend and a teacher's outputs: 10 of 1,000 for each image."""

    def make_soft_labels(images: int) -> SoftLabels:
        path = inputs.root / "labels.safetensors"
        open_for_writing(path, *make_header({"teacher": ""}, (8, 1, images, 10), 1000)).close()
        outputs = map_soft_labels(path, "r+").arrays
        for epoch in range(8):
            outputs.values[epoch, 0], outputs.classes[epoch, 0] = choose_outputs(
                torch.randn(images, 1000), 10
            )
        return SoftLabels(path, outputs.checksum, 8, 1000)

    return read_with_backend(inputs, "torchvision", make_soft_labels=make_soft_labels)


def read_normalized(inputs: LoaderInput) -> Iterator:
    """Read with the torchvision backend and normalize on the CPU; a GPU run uses the GPU."""
    torch.set_num_threads(1)
    return (normalize(batch.pixels) for batch in read_with_backend(inputs, "torchvision"))


def augment_in_pillow(augment: Callable, image: object, rng: object) -> object:
    """Augment with Pillow only, without the native decoder."""
    return augment(image, rng)


def read_with_torchvision(inputs: LoaderInput) -> Iterator:
    """Read with ImageFolder, PIL transforms and a DataLoader, as in the torchvision example."""
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(inputs.pixels),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return _read_with_torch(inputs, datasets.ImageFolder(str(inputs.root / "train"), transform))


def _read_with_torch(
    inputs: LoaderInput, images: Dataset, collate: Callable | None = None
) -> Iterator:
    """Read images endlessly in random order with a torch DataLoader."""
    sampler = RandomSampler(images, num_samples=10**6)
    workers = {"num_workers": WORKERS, "collate_fn": collate}
    return iter(DataLoader(images, BATCH, sampler=sampler, **workers))


def read_with_timm(inputs: LoaderInput) -> Iterator:
    """Read with timm dataset, transforms and uint8 collation, without the prefetcher."""
    from timm.data import create_dataset, create_transform
    from timm.data.loader import fast_collate

    transform = create_transform(
        inputs.pixels,
        is_training=True,
        use_prefetcher=True,
        interpolation="bilinear",
        color_jitter=0.0,
    )
    root = str(inputs.root / "train")
    images = create_dataset("", root=root, is_training=True, transform=transform)
    return _read_with_torch(inputs, images, fast_collate)


def read_with_ffcv(inputs: LoaderInput, folder: str = "default") -> Iterator:
    """Read with the FFCV Loader and the pipeline of its ImageNet example, uint8 output."""
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    pipelines = {
        "image": [
            RandomResizedCropRGBImageDecoder((inputs.pixels, inputs.pixels)),
            RandomHorizontalFlip(),
            ToTensor(),
            ToTorchImage(),
        ],
        "label": [IntDecoder(), ToTensor(), Squeeze()],
    }
    loader = Loader(
        str(inputs.root / folder / "train.beton"),
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines=pipelines,
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


def read_with_dali(inputs: LoaderInput) -> Iterator:
    """Read with the DALI CPU pipeline: fused decoding of random crops, uint8 output."""
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, prefetch_queue_depth=2)
    def define_pipeline():
        files, labels = fn.readers.file(file_root=str(inputs.root / "train"), random_shuffle=True)
        crops = fn.decoders.image_random_crop(
            files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[0.75, 4 / 3]
        )
        resized = fn.resize(
            crops, size=[inputs.pixels] * 2, interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.flip(resized, horizontal=fn.random.coin_flip()), labels

    built = define_pipeline()
    built.build()
    while True:
        yield built.run()


def read_with_torchcodec(inputs: LoaderInput) -> Iterator:
    """Read with torchcodec and torchvision tensor transforms in a DataLoader, uint8 output."""
    from torchcodec.decoders import decode_image

    crop = v2.RandomResizedCrop(inputs.pixels, antialias=True)
    transform = v2.Compose([crop, v2.RandomHorizontalFlip()])
    folder = str(inputs.root / "train")
    return _read_with_torch(inputs, datasets.ImageFolder(folder, transform, loader=decode_image))


RANDAUGMENT = RandAugment().augment_image()

LOADERS: dict[str, Callable[[LoaderInput], Iterator]] = {
    "files": lambda inputs: read_with_backend(inputs, "torchvision"),
    "files, decoded in Python": read_in_python,
    "files, normalized on the CPU": read_normalized,
    "files, soft labels": read_with_soft_labels,
    "torchvision + PIL": read_with_torchvision,
    "timm": read_with_timm,
    "torchcodec": read_with_torchcodec,
    "DALI": read_with_dali,
    "files, RandAugment": lambda inputs: read_with_backend(
        inputs, "torchvision", augment=RANDAUGMENT
    ),
    "files, RandAugment in Pillow": lambda inputs: read_with_backend(
        inputs, "torchvision", augment=partial(augment_in_pillow, RANDAUGMENT)
    ),
    ".beton": lambda inputs: read_with_backend(inputs, "ffcv", "default"),
    "bare FFCV": read_with_ffcv,
    "pixels in memory, 352 px": lambda inputs: read_with_backend(inputs, "torchvision", memory=352),
    ".beton, raw at 352 px": lambda inputs: read_with_backend(inputs, "ffcv", "raw"),
    ".beton, levels=2": lambda inputs: read_with_backend(inputs, "ffcv", "levels"),
    "bare FFCV, a file of that size": lambda inputs: read_with_ffcv(inputs, "equal"),
}

#: Our loaders and the peers to compare each with.
PAIRS = (
    ("files", "files, decoded in Python"),
    ("files", "torchvision + PIL"),
    ("files, normalized on the CPU", "torchvision + PIL"),
    ("files, soft labels", "files"),
    ("files", "timm"),
    ("files", "torchcodec"),
    ("files", "DALI"),
    ("files, RandAugment", "files, RandAugment in Pillow"),
    ("pixels in memory, 352 px", "files"),
    ("pixels in memory, 352 px", ".beton, raw at 352 px"),
    (".beton", "bare FFCV"),
    (".beton, levels=2", "bare FFCV, a file of that size"),
)
_PACKAGES = {
    "timm": "timm",
    "torchcodec": "torchcodec",
    "DALI": "nvidia.nvimgcodec",
    "bare FFCV": "ffcv",
    "bare FFCV, a file of that size": "ffcv",
}


def find_missing_packages() -> dict[str, str]:
    """Return the peers that cannot run here, each with a missing package."""
    return {name: package for name, package in _PACKAGES.items() if not _is_installed(package)}


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False

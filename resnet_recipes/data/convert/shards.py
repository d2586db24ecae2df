"""Images in shards of other programs: WebDataset's tar files, Hugging Face's parquet files."""

import hashlib
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import parse_json, read_bytes
from resnet_recipes.data.convert import parquet
from resnet_recipes.data.convert.source import Source
from resnet_recipes.data.files.table import LABEL
from resnet_recipes.data.images.decode import MAX_BYTES
from resnet_recipes.data.images.kinds import SUFFIXES
from resnet_recipes.data.root import SYNONYMS

#: The names of the classes, one a line, beside the shards.
NAMES = ("classnames.txt", "classes.txt")

#: The longest label or JSON of a sample, in bytes.
_LONGEST = 1 << 16


class Sample(NamedTuple):
    """Where an image is, and its label as the shard has it: a number, or a name."""

    label: int | str
    place: int  # in a tar file the byte where it starts, in a parquet file its row
    size: int  # bytes; in a parquet file the first row of its row group


class _Shards(Source):
    """The images of several files, in their order there."""

    def __init__(self, found: Sequence[tuple[Path, Sequence[Sample]]], classes: Sequence[str]):
        numbers = {name: number for number, name in enumerate(classes)}
        samples = [sample for _, shard in found for sample in shard]
        self.origin, self.classes = os.path.commonpath([path for path, _ in found]), tuple(classes)
        self.paths = [str(path) for path, _ in found]
        self.shards = np.repeat(np.arange(len(found)), [len(shard) for _, shard in found])
        self.places = np.array([(place, size) for _, place, size in samples], np.int64)
        labels = [
            each.label if isinstance(each.label, int) else numbers[each.label] for each in samples
        ]
        self.labels = np.array(labels, np.int64)
        known = [(os.path.basename(path), os.stat(path).st_size) for path in self.paths]
        self.fingerprint = hashlib.sha256(repr(known).encode() + self.places.tobytes()).hexdigest()


class TarSource(_Shards):
    """The images of WebDataset's tar files."""

    def name(self, index: int) -> str:
        header = self._bytes(index, -tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").name
        return f"{self.paths[self.shards[index]]}: {member}"

    def read(self, index: int) -> bytes:
        return self._bytes(index, 0, int(self.places[index, 1]))

    def _bytes(self, index: int, offset: int, size: int) -> bytes:
        with open(self.paths[self.shards[index]], "rb") as file:
            file.seek(int(self.places[index, 0]) + offset)
            return file.read(size)


class ParquetSource(_Shards):
    """The images of parquet files, whose groups of rows are read as a whole."""

    def name(self, index: int) -> str:
        return f"{self.paths[self.shards[index]]}: row {self.places[index, 0]}"

    def read(self, index: int) -> bytes:
        row, first = self.places[index].tolist()
        group = parquet.group(self.paths[self.shards[index]], first)
        if row - first >= len(group):
            raise ValueError("its row has no image")
        return group[row - first]

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        starts = np.flatnonzero(np.arange(len(self.labels)) == self._first())
        groups = np.split(np.arange(len(self.labels)), starts[1:])
        mixed = [rng.permutation(groups[number]) for number in rng.permutation(len(groups))]
        return np.concatenate(mixed)

    def _first(self) -> np.ndarray:
        """Return the index of the first image of each image's group of rows."""
        return np.arange(len(self.labels)) - (self.places[:, 0] - self.places[:, 1])


def shards_of(src: Path) -> dict[str, Source]:
    """Return the images of the shards in a folder, under "train" and "val", or all under "".

    Empty if it has none. Raises NotReadyError if they cannot be used, or OSError.
    """
    for suffix, kind, samples in (
        (".tar", TarSource, _in_tar),
        (".parquet", ParquetSource, _in_parquet),
    ):
        if files := sorted(path for path in _files_in(src) if path.suffix == suffix):
            named = _by_split(src, files)
            read = sorted(chain(*named.values()))
            found = {path: list(samples(path)) for path in read}
            if empty := [path for path, shard in found.items() if not shard]:
                raise NotReadyError.at(empty[0], "has no images", "remove it, or make it again")
            classes = _classes(src, found)
            made: dict[str, Source] = {
                split: kind([(path, found[path]) for path in paths], classes)
                for split, paths in named.items()
            }
            next(iter(made.values())).left_out = tuple(
                str(path) for path in files if path not in found
            )
            return made
    return {}


def _files_in(src: Path) -> list[Path]:
    """Return the files of a folder and of those of its splits; none if these have class folders."""
    if not src.is_dir():
        return []
    names = {"data", *chain(*SYNONYMS.values())}
    folders = [entry.path for entry in os.scandir(src) if entry.name in names and entry.is_dir()]
    below = [entry for folder in folders for entry in os.scandir(folder)]
    if any(entry.is_dir() for entry in below):
        return []
    return [Path(entry.path) for entry in (*os.scandir(src), *below) if entry.is_file()]


def _by_split(src: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the shards of each split, those of its first name that exists; or all under ""."""
    words = {path: re.findall("[a-z]+", str(path.relative_to(src)).lower()) for path in files}
    named: dict[str, list[Path]] = {}
    for split, synonyms in SYNONYMS.items():
        free = {*files} - {*chain(*named.values())}
        found = (sorted(path for path in free if name in words[path]) for name in synonyms)
        named[split] = next(filter(None, found), [])
    return named if all(named.values()) else {"": [*files]}


def _classes(src: Path, found: dict[Path, list[Sample]]) -> Sequence[str]:
    """Return the names of the classes, by label."""
    labels = {sample.label for shard in found.values() for sample in shard}
    numbers = {label for label in labels if isinstance(label, int)}
    names = {label for label in labels if isinstance(label, str)}
    if numbers and names:
        rule = "has labels that are numbers and labels that are names"
        raise NotReadyError.at(src, f"{rule}: {min(numbers)}, {min(names)}")
    if names:
        return sorted(names)
    count = max(numbers) + 1
    for path in found:
        if path.suffix == ".parquet" and (known := parquet.names(path)) is not None:
            return _names(path, known, count)
    for path in (src / name for name in NAMES):
        if path.exists():
            return _names(path, read_bytes(path).decode(errors="replace").splitlines(), count)
    return [str(label) for label in range(count)]


def _names(path: Path, given: object, count: int) -> list[str]:
    """Return the names of at least `count` classes. Raises NotReadyError if they are none."""
    names = given if isinstance(given, list) else []
    texts = {name for name in names if isinstance(name, str)}
    if len(texts) == len(names) >= count:
        return names
    rule = f"must name at least {count} different classes, but names {len(texts)}"
    raise NotReadyError.at(path, rule)


def _in_tar(path: Path) -> Iterator[Sample]:
    """Yield the samples of a tar file: members that differ only in their suffix, one an image."""
    try:
        with tarfile.open(path, "r:") as archive:
            yield from _grouped(path, archive)
    except tarfile.TarError as error:
        raise NotReadyError.at(path, f"cannot be read as a tar file: {error}") from None


def _grouped(path: Path, archive: tarfile.TarFile) -> Iterator[Sample]:
    for key, members in groupby(_files(archive), _key):
        image, label = None, None
        for member in members:
            suffix = _suffix(member)
            if f".{suffix}" in SUFFIXES:
                image = member
            elif member.size <= _LONGEST and (suffix == "cls" or (suffix, label) == ("json", None)):
                label = _label(_content(archive, member), suffix)
        yield _sample(path, key, image, label)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


def _key(member: tarfile.TarInfo) -> str:
    """Return what the members of a sample have in common: the path up to the name's first dot."""
    folder, _, name = member.name.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def _suffix(member: tarfile.TarInfo) -> str:
    return member.name.rpartition("/")[2].partition(".")[2].lower()


def _files(archive: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    return (member for member in archive if member.isreg() and not member.issparse())


def _sample(path: Path, key: str, image: tarfile.TarInfo | None, label: int | str | None) -> Sample:
    if image is None or label is None:
        lacking = "an image" if image is None else "a label: .cls, or label in .json"
        raise NotReadyError.at(path, f"sample {key} lacks {lacking}")
    return Sample(label, image.offset_data, min(image.size, MAX_BYTES + 1))


def _label(content: bytes, suffix: str) -> int | str | None:
    """Return the label in a .cls or .json member; None if there is none."""
    text = content.decode("utf-8", "replace").strip()
    if suffix == "json":
        try:
            found = parse_json(text)
        except ValueError:
            return None
        known = found if isinstance(found, dict) else {}
        text = str(next((known[name] for name in LABEL if name in known), ""))
    if re.fullmatch("[0-9]{1,6}", text):
        return int(text)
    return text[:200] or None


def _in_parquet(path: Path) -> Iterator[Sample]:
    """Yield the samples of a parquet file."""
    return (Sample(*row) for row in parquet.rows(path))

"""Images in shards of other programs: WebDataset tar files, Hugging Face parquet files."""

import hashlib
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resnet_recipes.base.errors import Hint, NotReadyError, Statement
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.base.reading import MAX_BYTES, open_regular, parse_json, read_bytes
from resnet_recipes.data.convert.encode import OriginalImages
from resnet_recipes.data.convert.tar import Member, iterate_members
from resnet_recipes.data.files.table import LABEL
from resnet_recipes.data.images import decode
from resnet_recipes.data.root import SYNONYMS

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

#: Files next to the shards with class names, one per line.
CLASS_NAME_FILES = ("classnames.txt", "classes.txt")

_MAX_LABEL_BYTES = 1 << 16  # bytes of a label or JSON in a tar file
_MAX_NAME_LENGTH = 200  # characters of a class name
_MAX_CLASSES = 1_000_000
_LABEL_RULE = (
    f"a number from 0 to {_MAX_CLASSES - 1:,}, or a name of at most {_MAX_NAME_LENGTH} characters"
)
_MAX_GROUP_BYTES = 1 << 30  # bytes of a row group; each process keeps one group
_MAX_BATCH_BYTES = 1 << 26  # bytes of rows of a group that are decoded together
_TOO_LARGE = f"its group of rows has more than {_MAX_GROUP_BYTES:,} bytes"
_END_BYTES = 8  # last bytes of a parquet file: the size of the footer before them, and PAR1


class ShardSample(NamedTuple):
    """The place of an image, and its label in the shard: a number or a name."""

    label: int | str
    offset: int  # tar file: the byte where it starts; parquet file: its row
    size: int  # tar file: bytes; parquet file: the number of its row group


class Shards:
    """The images of several files, in file order."""

    def __init__(self, listings: Mapping[Path, Sequence[ShardSample]], classes: Sequence[str]):
        numbers: dict[int | str, int | str] = dict(zip(classes, range(len(classes)), strict=True))
        samples = [*chain(*listings.values())]
        self.paths = [str(path) for path in listings]
        self.shards = np.repeat(np.arange(len(listings)), [*map(len, listings.values())])
        self.offsets = np.array([(offset, size) for _, offset, size in samples], np.int64)
        self.labels = np.array([numbers.get(label, label) for label, _, _ in samples], np.int64)

    def _find(self, index: int) -> tuple[str, int, int]:
        """Return the path of an image's shard, and its place and size; see `ShardSample`."""
        return (self.paths[self.shards[index]], *self.offsets[index].tolist())


class TarShards(Shards):
    """The images of WebDataset tar files."""

    def path(self, index: int) -> str:
        path, offset, _ = self._find(index)
        header = _read_bytes(path, offset - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
        return f"{path}: {tarfile.TarInfo.frombuf(header, 'utf-8', 'surrogateescape').name}"

    def read(self, index: int) -> decode.Picture:
        """Read one image."""
        return decode.Picture(_read_bytes(*self._find(index)))


class ParquetShards(Shards):
    """The images of parquet files; row groups are read as a unit."""

    def path(self, index: int) -> str:
        path, row, _ = self._find(index)
        return f"{path}: row {row}"

    def read(self, index: int) -> decode.Picture:
        """Read one image.

        Raises ValueError if it is not an image in a readable row group, NotReadyError or OSError if
        the file cannot be read.
        """
        path, row, number = self._find(index)
        images = read_row_group(path, number)
        if row not in images:
            raise ValueError("its row has no image")
        return decode.Picture(images[row])


def find_shards(src: Path) -> dict[str, OriginalImages]:
    """Return the images of the shards in a folder, under "train" and "val", or all under "".

    Empty without shards. Raises NotReadyError if the shards cannot be used, OSError if a folder
    cannot be read.
    """
    paths = sorted(_list_files(src))
    tars = [path for path in paths if path.suffix == ".tar"]
    files = tars or [path for path in paths if path.suffix == ".parquet"]
    if not files:
        return {}
    kind, samples = (TarShards, _read_tar) if tars else (ParquetShards, _read_parquet)
    files_by_split = _group_by_split(src, files)
    listings = {path: [*samples(path)] for path in sorted(chain(*files_by_split.values()))}
    if empty := [path for path, shard in listings.items() if not shard]:
        raise NotReadyError.at(empty[0], "has no images", Hint("remove it, or make it again"))
    classes = _find_classes(src, listings)
    ignored_files = tuple(str(path) for path in files if path not in listings)
    sources = {}
    for split, paths in files_by_split.items():
        images = kind({path: listings[path] for path in paths}, classes)
        groups = None
        if not tars:  # a row group is read as a unit
            changes = np.diff(images.shards, prepend=0) | np.diff(images.offsets[:, 1], prepend=0)
            groups = np.cumsum(changes != 0)
        identity = repr([(path.name, path.stat().st_size) for path in paths]).encode()
        fingerprint = hashlib.sha256(identity + images.offsets.tobytes()).hexdigest()
        folder = os.path.realpath(os.path.commonpath(paths))
        sources[split] = OriginalImages(
            images, folder, tuple(classes), fingerprint, ignored_files, groups
        )
        ignored_files = ()  # the first split reports them
    return sources


def _list_files(src: Path) -> list[Path]:
    """Return the files of a folder and its split folders; none if there are class folders."""
    if not src.is_dir():
        return []
    names = {"data", *chain(*SYNONYMS.values())}
    top = [*src.iterdir()]
    below = [*chain(*(path.iterdir() for path in top if path.name in names and path.is_dir()))]
    if any(path.is_dir() for path in below):
        return []
    return [path for path in (*top, *below) if path.is_file()]


def _group_by_split(src: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the shards of each split, by the first synonym that exists, or all under ""."""
    words = {path: re.findall("[a-z]+", str(path.relative_to(src)).lower()) for path in files}
    files_by_split: dict[str, list[Path]] = {}
    for split, synonyms in SYNONYMS.items():
        free = {*files} - {*chain(*files_by_split.values())}
        matches = (sorted(path for path in free if name in words[path]) for name in synonyms)
        files_by_split[split] = next(filter(None, matches), [])
    return files_by_split if all(files_by_split.values()) else {"": [*files]}


def _find_classes(src: Path, listings: dict[Path, list[ShardSample]]) -> Sequence[str]:
    labels = {sample.label for shard in listings.values() for sample in shard}
    numbers = {label for label in labels if isinstance(label, int)}
    names = {label for label in labels if isinstance(label, str)}
    if numbers and names:
        clause = "has both numbers and names as labels"
        raise NotReadyError.at(src, f"{clause}: {min(numbers)}, {min(names)}")
    if names:
        return sorted(names)
    count = max(numbers) + 1
    for path in listings:
        if path.suffix == ".parquet" and (value := _read_class_names(path)) is not None:
            return _read_names(path, value, count)
    for path in (src / name for name in CLASS_NAME_FILES):
        if path.exists():
            return _read_names(path, read_bytes(path).decode(errors="replace").splitlines(), count)
    return [str(label) for label in range(count)]


def _read_names(path: Path, value: object, count: int) -> list[str]:
    """Return the names of at least `count` classes. Raises NotReadyError if they are invalid."""
    names = value if isinstance(value, list) else []
    texts = {name for name in names if isinstance(name, str)}
    if len(texts) == len(names) >= count:
        return names
    rule = f"must name at least {count} different classes, but names {len(texts)}"
    raise NotReadyError.at(path, rule)


def _read_bytes(path: str, start: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


def _read_tar(path: Path) -> Iterator[ShardSample]:
    """Yield the samples of a tar file: members with a common key, including one image."""
    try:
        for key, group in groupby(iterate_members(path), lambda member: _split_name(member)[0]):
            yield _make_sample(path, key, [*group])
    except ValueError as error:
        clause = f"cannot be read as a tar file: {error}"
        raise NotReadyError.at(path, clause, Hint("download it or make it again")) from None


def _split_name(member: Member) -> tuple[str, str]:
    """Return the key of a member's sample, up to the first dot of its name, and its suffix."""
    folder, _, name = member.name.rpartition("/")
    stem, _, suffix = name.partition(".")
    return f"{folder}/{stem}", suffix.lower()


def _make_sample(path: Path, key: str, group: Sequence[Member]) -> ShardSample:
    """Return the only image of a sample's members, and its label, from .cls before .json."""
    by_suffix = {_split_name(member)[1]: member for member in group}
    images = [member for suffix, member in by_suffix.items() if f".{suffix}" in decode.SUFFIXES]
    if len(by_suffix) < len(group) or len(images) > 1:
        names = ", ".join(member.name for member in group[:8])
        clause = f"sample {key} has more than one image or label: {names}"
        raise NotReadyError.at(path, Statement(clause))
    if not images:
        raise NotReadyError.at(path, Statement(f"sample {key} lacks an image"))
    suffix = next((suffix for suffix in ("cls", "json") if suffix in by_suffix), "")
    label = _read_label(path, by_suffix[suffix], suffix) if suffix else None
    if label is None:
        clause = Statement(
            f"sample {key} lacks a label: {_LABEL_RULE} in .cls, or under label in .json"
        )
        raise NotReadyError.at(path, clause)
    return ShardSample(label, images[0].offset, min(images[0].size, decode.MAX_IMAGE_BYTES + 1))


def _read_label(path: Path, member: Member, suffix: str) -> int | str | None:
    """Return the label in a .cls or .json member; None if it is absent, invalid or too large."""
    if member.size > _MAX_LABEL_BYTES:
        return None
    try:
        value: object = _read_bytes(str(path), member.offset, member.size).decode().strip()
        if suffix == "json":
            parsed = parse_json(str(value))
            fields = parsed if isinstance(parsed, dict) else {}
            value = next((fields[name] for name in LABEL if name in fields), None)
    except ValueError:
        return None
    if isinstance(value, str) and re.fullmatch("-[0-9]+|[0-9]{1,6}", value):
        value = int(value)
    return _parse_label(value)


def _parse_label(value: object) -> int | str | None:
    """Return a value that can be the label of an image; None for others."""
    if isinstance(value, str):
        return value if 0 < len(value) <= _MAX_NAME_LENGTH else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MAX_CLASSES else None


def _read_parquet(path: Path) -> Iterator[ShardSample]:
    """Yield a parquet file's samples. Raises NotReadyError if it is damaged or lacks labels."""
    file = _open_parquet(path)
    columns = file.schema_arrow.names
    label = next((name for name in LABEL if name in columns), None)
    if label is None or columns.count("image") != 1 or columns.count(label) != 1:
        clause = f"needs one column image and one label, and has {', '.join(columns[:8])}"
        raise NotReadyError.at(path, clause)
    row = 0
    for number in range(file.num_row_groups):
        try:
            for value in _read_column(file, number, label):
                if (parsed := _parse_label(value)) is None:
                    raise NotReadyError.at(path, f"has no label in row {row}: {_LABEL_RULE}")
                yield ShardSample(parsed, row, number)
                row += 1
        except (ValueError, OSError) as error:
            raise NotReadyError.at(path, f"cannot be read: {error}") from None


@lru_cache(maxsize=1)
def read_row_group(path: str, number: int) -> dict[int, bytes]:
    """Return the images of a row group, by row.

    Raises ValueError if the group is too large, damaged or gone, and NotReadyError or OSError if
    the file cannot be read.
    """
    file = _open_parquet(Path(path))
    if number >= file.num_row_groups:
        raise ValueError("the file has changed")
    first = sum(file.metadata.row_group(before).num_rows for before in range(number))
    values, size = {}, 0
    for row, cell in enumerate(_read_column(file, number, "image"), first):
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        values[row] = content if isinstance(content, bytes) else b""
        size += len(values[row])
        if size > _MAX_GROUP_BYTES:
            raise ValueError(_TOO_LARGE)
    return values


def _read_column(file: "ParquetFile", group: int, name: str) -> Iterator[Any]:
    """Yield the values of a column in a row group.

    A few kilobytes can encode a large value in every row, so the column size limits the number of
    rows decoded at once. Raises ValueError if the column is too large or damaged, and OSError if it
    cannot be read.
    """
    from pyarrow import ArrowException

    row_group = file.metadata.row_group(group)
    parts = (row_group.column(index) for index in range(row_group.num_columns))
    size = sum(
        part.total_uncompressed_size
        for part in parts
        if part.path_in_schema.partition(".")[0] == name
    )
    if size > _MAX_GROUP_BYTES:
        raise ValueError(_TOO_LARGE)
    rows_per_batch = max(1, min(64, _MAX_BATCH_BYTES // max(1, size)))
    try:
        for batch in file.iter_batches(rows_per_batch, row_groups=[group], columns=[name]):
            yield from batch[name].to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from None


def _read_class_names(path: Path) -> object:
    """Return the class names in the Hugging Face metadata; None without metadata."""
    try:
        metadata = parse_json(_open_parquet(path).schema_arrow.metadata[b"huggingface"].decode())
        features = metadata["info"]["features"]
        return next(features[name]["names"] for name in LABEL if name in features)
    except (TypeError, KeyError, ValueError, StopIteration):
        return None


def _open_parquet(path: Path) -> "ParquetFile":
    """Open a parquet file. Raises NotReadyError if pyarrow is missing or the file is damaged."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise NotReadyError.at(
            path, "needs the package pyarrow", suggest_install("parquet")
        ) from None
    try:
        with open_regular(path) as file:  # pyarrow loads a footer of any size into memory
            file.seek(-_END_BYTES, os.SEEK_END)
            if int.from_bytes(file.read(4), "little") > MAX_BYTES:
                raise OSError(f"its description is larger than {MAX_BYTES:,} bytes")
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise NotReadyError.at(path, f"cannot be read as a parquet file: {error}") from None

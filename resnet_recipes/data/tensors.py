"""Read tensors from untrusted .safetensors files."""

import math
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from resnet_recipes.base.reading import open_regular, parse_json

_MAX_HEADER_BYTES = 32 << 20  # a million class names take half of it
MAX_ENTRIES = 20_000


class TensorFile(NamedTuple):
    """The contents of a .safetensors file, mapped into memory."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read_tensors(path: Path, max_bytes: float = math.inf) -> TensorFile:
    """Return the contents of a file of at most `max_bytes` bytes.

    Raises ValueError, with a phrase for the user, if it is not such a file, OSError if it cannot be
    read.
    """
    with open_regular(path, max_bytes) as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = parse_json(file.read(min(length, _MAX_HEADER_BYTES)).decode())
        except ValueError:
            raise ValueError("it is not a .safetensors file, or is incomplete") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    if len(header) > MAX_ENTRIES:
        raise ValueError(f"it has more than {MAX_ENTRIES:,} entries")
    try:
        with safe_open(path, "pt") as opened:
            names = opened.keys()
            tensors = {name: opened.get_tensor(name) for name in names}
            return TensorFile(tensors, opened.metadata() or {})
    except SafetensorError as error:
        raise ValueError(f"it is damaged or incomplete ({str(error)[:200]})") from None

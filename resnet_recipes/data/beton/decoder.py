"""What decodes the samples of a .beton file: the native engine, or FFCV's library where the engine was not built."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from resnet_recipes.data.beton.file import JPEG, Beton
from resnet_recipes.data.beton.native import COMPLAINTS, compiled_decode, ffcv_native
from resnet_recipes.data.crop import Cuts
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.library import why_not
from resnet_recipes.data.native.rows import BOX, CENTRE, ROW, Status

#: (samples, cuts, rows): fills rows.pixels from samples, int64 [n, 5] (start, length, mode, height, width). Returns the
#: place of the first sample that is wrong, and what is wrong with it; None if all are right. Several threads may call
#: it at once.
Decode = Callable[[np.ndarray, Cuts, Rows], tuple[int, str] | None]

_COMPLAINTS = {Status.FOREIGN: COMPLAINTS[1], Status.MISMATCHED: COMPLAINTS[1],
               Status.CUT_SHORT: "the file was cut short after it was opened"}


class Manner(NamedTuple):
    """How the engine decodes; FFCV's library has one way only."""

    threads: int
    reduced: bool = True      # large crops at 1/2, 1/4 or 1/8 of their size
    resize: int = 0           # pixels; instead of the cut: the image with this shorter side, and the centre of that


def decoder(beton: Beton, manner: Manner) -> Decode:
    """Return what decodes samples of this file here. Raises NotReadyError where nothing can."""
    return _of_ffcv(beton) if why_not() else _of_engine(beton, manner)


def require_decoder() -> None:
    """Raise NotReadyError where neither the engine nor FFCV can be used."""
    if why_not():
        ffcv_native()


def _of_engine(beton: Beton, manner: Manner) -> Decode:
    """Return the engine's decoder: crops alone are decoded, and resized as Pillow does."""
    engine, content = Engine(max(1, manner.threads)), np.asarray(beton.content)

    def decode(samples: np.ndarray, cuts: Cuts, rows: Rows) -> tuple[int, str] | None:
        wanted = np.zeros(len(samples), ROW)
        wanted["data"], wanted["length"] = content.ctypes.data + samples[:, 0], samples[:, 1]
        wanted["raw"], wanted["size"], wanted["mirror"] = samples[:, 2] != JPEG, samples[:, 3:], cuts.mirrored
        wanted["filter"] = cuts.bicubic
        wanted["geometry"], wanted["resize"] = CENTRE if manner.resize else BOX, manner.resize
        wanted["whole"] = manner.resize or not manner.reduced
        wanted["box"], wanted["side"] = cuts.boxes[:, [1, 0, 3, 2]], rows.pixels.shape[1]
        wanted["pixels"] = rows.pixels.ctypes.data + np.arange(len(samples)) * rows.pixels.strides[0]
        refused = engine.fill(wanted, rows.reading)
        if not len(refused):
            return None
        return int(refused[0]), _COMPLAINTS.get(wanted["status"][refused[0]], COMPLAINTS[2])

    return decode


def _of_ffcv(beton: Beton) -> Decode:
    """Return FFCV's decoder: whole images are decoded, and resized by the area mean."""
    compiled, content, local = compiled_decode(), np.asarray(beton.content), threading.local()
    largest = 3 * int(beton.sizes[beton.modes == JPEG].prod(axis=1).max(initial=1))

    def decode(samples: np.ndarray, cuts: Cuts, rows: Rows) -> tuple[int, str] | None:
        if not hasattr(local, "scratch"):
            local.scratch = np.empty(largest, np.uint8)
        place, complaint = compiled(content, samples, cuts.boxes, cuts.mirrored, local.scratch, rows.pixels)
        return (place, COMPLAINTS[complaint]) if complaint else None

    return decode

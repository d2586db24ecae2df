"""JPEGs decoded on a GPU by nvJPEG, through torchcodec or torchvision; on a CPU, by the same call, by libjpeg-turbo."""

import io
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def decoded(files: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Return whole JPEGs, uint8 [length] each, as RGB: uint8 [3, height, width] on `device`, which is waited for.

    Raises RuntimeError if one of them cannot be decoded. Other Python threads can run meanwhile.
    """
    return _binding()([torch.from_numpy(file) for file in files], mode="RGB", device=device)


def fault(device: torch.device) -> str:
    """Return why nvJPEG cannot be used on a GPU, found by decoding a test image; empty if it can."""
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    across, file = np.tile(ramp, (64, 1)), io.BytesIO()
    expected = np.stack([across, across.T, np.full_like(across, 99)], axis=2)
    Image.fromarray(expected).save(file, "JPEG", quality=95, subsampling=0)
    try:
        found = (
            decoded([np.frombuffer(file.getvalue(), np.uint8).copy()], device)[0]
            .cpu()
            .permute(1, 2, 0)
            .numpy()
        )
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    apart = float(np.abs(found.astype(int) - expected).mean())
    return "" if apart < 4 else f"its pixels differ from a test image's by {apart:.1f} grey levels"


def name() -> str:
    """Return which package calls nvJPEG here."""
    return "torchcodec" if find_spec("torchcodec") else "torchvision"


@cache
def _binding() -> Callable[..., list[Tensor]]:
    """Return torchcodec's function if it is installed; torchvision's has been deprecated since 0.29."""
    if name() == "torchcodec":
        from torchcodec.decoders import decode_jpeg
    else:
        from torchvision.io import decode_jpeg
    return decode_jpeg

"""Plots as pictures, drawn by the plotting library, which is an extra."""

import io
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.extras import remedy
from resnet_recipes.report.page.charts import Spec, to_json
from resnet_recipes.report.page.html import Figure


def plotting(key: str) -> ModuleType:
    """Return the plotting library, which `key` needs. Raises NotReadyError if it is missing."""
    try:
        import vl_convert
    except ImportError:
        rule = "needs the plotting library, which is not installed"
        raise NotReadyError.of(key, None, rule, remedy("report")) from None
    return vl_convert


def png(spec: Spec) -> bytes:
    """Draw a plot as a PNG."""
    return plotting("--png").vegalite_to_png(to_json(spec), scale=2)


def write_pictures(folder: Path, figures: Iterable[Figure]) -> None:
    """Write plots as PNGs, with a palette, which looks the same at a tenth of the size."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        drawn = io.BytesIO(png(figure.spec | {"width": 760}))
        picture = Image.open(drawn).convert("RGB").quantize(256)
        with atomic.replacing(folder / f"{figure.name}.png") as file:
            picture.save(file, "PNG", optimize=True)

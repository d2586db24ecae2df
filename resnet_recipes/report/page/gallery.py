"""The images that a network got most wrong, as one HTML page."""

import base64
import io
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.text import in_html
from resnet_recipes.report.page.html import document

#: Most pixels of a thumbnail's side.
_SIDE = 160


class Tile(NamedTuple):
    """An image, as the network saw it, and what it was taken for."""

    pixels: np.ndarray  # uint8 [H, W, 3]
    name: str
    label: str
    prediction: str
    probability: float


def gallery(title: str, text: str, tiles: Iterable[Tile]) -> str:
    """Return the page, about 10 kB for each image; every name is escaped."""
    figures = [
        f'<figure><img src="data:image/jpeg;base64,{_jpeg(tile.pixels)}" alt="">'
        f"<figcaption>{100 * tile.probability:.1f} % {in_html(tile.prediction)}<br>"
        f"is {in_html(tile.label)}<br><small>{in_html(tile.name)}</small></figcaption></figure>"
        for tile in tiles
    ]
    return document(title, [f"<p>{in_html(text)}</p>", '<div class="gallery">', *figures, "</div>"])


def _jpeg(pixels: np.ndarray) -> str:
    from PIL import Image

    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((_SIDE, _SIDE))
    picture.save(file, "JPEG", quality=90)
    return base64.b64encode(file.getvalue()).decode()

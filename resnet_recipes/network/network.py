"""A trained network with its transform and class names."""

import os

import torch
from PIL import Image
from torch import Tensor, nn

from resnet_recipes.data.images.decode import Picture, Pixels, read_file, rgb
from resnet_recipes.data.images.python import centred
from resnet_recipes.data.normalize import normalize
from resnet_recipes.network.about import About


class Network(nn.Module):
    """A trained network, from images to logits.

    `network(network.transform("cat.jpg")[None])` returns the logits of an image, [1, K].
    """

    def __init__(self, model: nn.Module, about: About, note: str = ""):
        """Wrap the bare network with its description and a note on what its file does not say."""
        super().__init__()
        self.model, self.about, self.note = model, about, note
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each output, or its number if names are unknown."""
        return tuple(map(self.about.class_name, range(self.about.num_classes)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [N, K] of normalised images [N, 3, H, W]."""
        return self.model(images)

    def transform(self, image: str | os.PathLike | bytes | Image.Image) -> Tensor:
        """Return an image as input for `forward`, float32 [3, S, S].

        Resized, cropped and normalised as in evaluation.

        A path or a file's bytes are decoded exactly as by the training loader, which ignores EXIF
        orientation. Raises BadImageError.
        """
        about = self.about
        if isinstance(image, Image.Image):
            picture = Pixels(rgb(image))
        else:
            picture = Picture(image if isinstance(image, bytes) else read_file(image))
        pixels = centred(
            picture, about.eval_resize, about.eval_size, about.eval_interpolation == "bicubic"
        )
        return normalize(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])[0]

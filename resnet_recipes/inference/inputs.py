"""Inputs of an exported network: sizes, example images and preprocessing."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resnet_recipes.data.base import compute_shift_and_scale
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network

#: A network as a function from normalized float32 images [N, 3, H, W] to logits [N, K]; with
#: preprocessing, from uint8 images [N, H, W, 3] to probabilities.
Program = Callable[[Tensor], Tensor]


class HalfNetwork(nn.Module):
    """A float16 network with float32 images as input and float32 logits as output."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.half()).float()


class PreprocessingNetwork(nn.Module):
    """A network from uint8 RGB images [N, height, width, 3] of any size to probabilities [N, K].

    It resizes, crops and normalizes as in evaluation, with pixel values within 2 levels. In an
    image at least six times as long as wide, pixels may move by less than a pixel. Resizing and
    center crop are two matrix products, with matrices of a fixed height that are computed from the
    size of the image. All runtimes have these operations, but not all can resize with antialiasing.
    """

    shift_and_scale: Tensor  # -mean / std and 1 / std, [2, 3]
    mean: Tensor  # padding color, [3, 1, 1]

    def __init__(self, model: nn.Module, about: NetworkDescription):
        super().__init__()
        self.model = model
        self.resize, self.size, self.flip = about.eval_resize, about.eval_size, about.flip
        self.register_buffer(
            "shift_and_scale",
            compute_shift_and_scale(torch.device("cpu"), about.mean, about.std).clone(),
            False,
        )
        self.bicubic = about.eval_interpolation == "bicubic"
        self.fit = about.fit
        self.register_buffer("mean", torch.tensor(about.mean).round().view(3, 1, 1), False)

    def forward(self, images: Tensor) -> Tensor:
        shift, scale = self.shift_and_scale.view(2, 1, 3, 1, 1)
        pixels = torch.addcmul(shift, self.crop_center(images), scale)
        logits = self.model(pixels)
        if self.flip:
            logits = (logits + self.model(pixels.flip(3))) / 2
        return logits.softmax(1)

    def crop_center(self, images: Tensor) -> Tensor:
        """Return the center crop of resized images, integers in float32 [N, 3, size, size]."""
        rows, columns = (torch.arange(size, device=images.device) for size in images.shape[1:3])
        height = rows[-1] + 1
        width = columns[-1] + 1
        pixels = images.permute(0, 3, 1, 2).float()
        # each pass is rounded to 8 bits, as in Pillow and torch
        across, wide = self._compute_weights(columns, width, height)
        down, tall = self._compute_weights(rows, height, width)
        pixels = _round(down @ _round(pixels @ across.T))
        return torch.where(tall[:, None] & wide, pixels, self.mean) if self.fit == "pad" else pixels

    def _compute_weights(
        self, positions: Tensor, length: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return each input pixel's weight in each output pixel, and which outputs are not padding.

        Float32 [size, length] and bool [size]. `positions` [length] are the positions of the input
        pixels along one dimension, `other` is the length of the other dimension.
        """
        resized = torch.full_like(length, self.resize)
        if self.fit == "crop":
            resized = (self.resize * length // other).clamp(min=self.resize)
        elif self.fit == "pad":
            ratio = torch.maximum(length, other).double() / self.resize
            resized = (length / ratio).round().long().clamp(min=1)
        scale = length.float() / resized.float()
        over = resized - self.size
        first = (over.clamp(min=0).float() / 2).round() - (-over).clamp(min=0) // 2
        outputs = torch.arange(self.size, device=positions.device) + first
        centers = (outputs.clamp(min=0).minimum(resized - 1) + 0.5) * scale
        distances = (positions + 0.5 - centers[:, None]).abs() / scale.clamp(min=1)
        weights = _compute_cubic(distances) if self.bicubic else F.relu(1 - distances)
        return weights / weights.sum(1, keepdim=True), (outputs >= 0) & (outputs < resized)


def _round(pixels: Tensor) -> Tensor:
    return (pixels + 0.5).floor().clamp(0, 255)


def _compute_cubic(distances: Tensor) -> Tensor:
    """Return the Keys cubic kernel with a = -0.5, as in Pillow, at distances from 0."""
    near = (1.5 * distances - 2.5) * distances * distances + 1
    far = ((-0.5 * distances + 2.5) * distances - 4) * distances + 2
    return torch.where(distances < 1, near, torch.where(distances < 2, far, 0.0))


class Inputs(NamedTuple):
    """The inputs of an exported network."""

    example: Tensor
    dynamic_shapes: tuple[dict[int, Any], ...]  # the dimensions that may vary, for torch.export


def make_inputs(network: Network, any_size: bool) -> Inputs:
    """Return the inputs of a network, of any size if possible, or only of the evaluation size.

    Images of any size differ in height and width, so that export treats neither as constant.
    """
    size = torch.export.Dim
    batch = {0: size("batch")}
    if is_preprocessed(network):
        dimensions = {1: size("height", min=2), 2: size("width", min=2)}
        return Inputs(torch.zeros(2, 64, 96, 3, dtype=torch.uint8), (batch | dimensions,))
    # timm's layers with TensorFlow's padding depend on the size, and torch takes minutes to derive
    # each layer's size from the images'
    has_dynamic_padding = any(
        type(module).__name__.endswith("Same") for module in network.model.modules()
    )
    if any_size and not has_dynamic_padding:
        dimensions = {2: size("height", min=8), 3: size("width", min=8)}
        return Inputs(torch.zeros(2, 3, 64, 96), (batch | dimensions,))
    image_size = network.about.eval_size
    return Inputs(torch.zeros(2, 3, image_size, image_size), (batch,))


def is_preprocessed(network: Network) -> bool:
    """Return whether a network includes its preprocessing."""
    return isinstance(network.model, PreprocessingNetwork)


def is_any_size_accepted(model: Program) -> bool:
    """Return whether a network accepts small non-square images with incomplete patches."""
    return is_size_accepted(model, 61, 93)


@torch.no_grad()
def is_size_accepted(model: Program, height: int, width: int) -> bool:
    """Return whether a network on the CPU accepts images of a size."""
    try:
        model(torch.zeros(2, 3, height, width))
    except Exception:  # a network may raise any exception for a size
        return False
    return True

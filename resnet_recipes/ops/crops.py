"""Training crops of decoded images of all sizes: cut out, resized with antialiasing, mirrored, in one pass."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.ops.library import register

#: A GPU's float32 may round a grey level differently now and then; torch on a GPU rounds once, the
#: kernel twice.
TOLERANCE = 5e-3


def plain(pixels: Tensor, cuts: Tensor, side: int) -> Tensor:
    """Return crops, uint8 [N, side, side, 3], with torch's own operations, image by image.

    `pixels`, uint8, holds images [3, height, width] one after the other. `cuts`, int64 [N, 9], has
    for each crop where its image begins, the image's height and width, the box (top, left, height,
    width), and whether it is mirrored and whether its filter is bicubic. On a CPU the levels are
    those of the loader's own decoders.
    """
    crops = pixels.new_empty(len(cuts), side, side, 3)
    for crop, (start, height, width, top, left, tall, wide, mirrored, bicubic) in zip(
        crops, cuts.tolist(), strict=True
    ):
        image = pixels[start : start + 3 * height * width].view(1, 3, height, width)
        made = _resized(image[..., top : top + tall, left : left + wide], side, bool(bicubic))[0]
        crop.copy_((made.flip(2) if mirrored else made).permute(1, 2, 0))
    return crops


def fused(pixels: Tensor, cuts: Tensor, side: int) -> Tensor:
    """Do the same in one launch."""
    return torch.ops.resnet_recipes.crops.default(pixels, cuts, side)


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield images with a grain, shrunk and enlarged, whole and in part, by both filters; `dtype` is ignored."""
    device = generator.device
    ramp = torch.arange(3 * 20 * 15, device=device) // 6
    grain = torch.randint(50, (2, 3 * 20 * 15), generator=generator, device=device)
    cuts = [
        [0, 20, 15, 0, 0, 20, 15, 0, 0],
        [900, 20, 15, 3, 2, 16, 11, 1, 1],
        [900, 15, 20, 14, 18, 1, 2, 1, 0],
    ]
    yield [], [(ramp + grain).to(torch.uint8).flatten(), torch.tensor(cuts, device=device), 9]


def _resized(image: Tensor, side: int, bicubic: bool) -> Tensor:
    """Resize [1, 3, h, w]; a GPU has no such operation for uint8, and returns rounded floats."""
    if image.shape[2:] == (side, side):
        return image
    image = image if image.device.type == "cpu" else image.float()
    made = F.interpolate(
        image, (side, side), mode="bicubic" if bicubic else "bilinear", antialias=True
    )
    return made if made.dtype == torch.uint8 else made.round_().clamp_(0, 255)


def _forward_cuda(pixels: Tensor, cuts: Tensor, side: int) -> Tensor:
    from resnet_recipes.ops.kernels import crops as kernels

    return kernels.forward(pixels, cuts, side)


def _fake(pixels: Tensor, cuts: Tensor, side: int) -> Tensor:
    return pixels.new_empty(len(cuts), side, side, 3)


register(
    "crops(Tensor pixels, Tensor cuts, SymInt side) -> Tensor",
    cpu=plain,
    cuda=_forward_cuda,
    fake=_fake,
)

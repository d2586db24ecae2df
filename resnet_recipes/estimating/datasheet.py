"""What GPUs can do by their datasheets, and the share of it that training a ResNet reaches."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from resnet_recipes.base.kinds import of_texts


@dataclass(frozen=True)
class Gpu:
    """A GPU: rates from its datasheet, and shares of them fitted to measured training speeds."""

    name: str
    pattern: str  # regular expression of the driver's name for it
    teraflops: float  # bf16 or fp16 with sums in fp32, dense, 10^12 per second
    terabytes: float  # memory traffic, 10^12 bytes per second
    gigabytes: float  # memory, 10^9 bytes
    sustained: float  # share of `teraflops` that a large matrix product sustains
    convolution: float  # share of the roofline that cuDNN's convolutions reach
    plain: float  # share of `traffic` that torch's own elementwise kernels reach

    @property
    def traffic(self) -> float:
        """Bytes per second that a large copy sustains."""
        return 0.88e12 * self.terabytes

    @property
    def flops(self) -> float:
        """Floating-point operations per second that a large matrix product sustains."""
        return 1e12 * self.teraflops * self.sustained


#: Rates: NVIDIA's datasheets of V100, T4, A100, L4, L40S, H100 and H200, of HGX B200, and the GA102
#: and AD102 white papers. Shares: H200 measured by benchmarks/gpu_session; A100, V100 and 3090 from
#: PyTorch and timm; convolutions of A100, H100 and L40S from MLPerf's logs (docs/performance.md);
#: the others are guesses.
with Path(__file__).with_name("datasheet.csv").open(encoding="utf-8", newline="") as _file:
    GPUS: tuple[Gpu, ...] = tuple(of_texts(Gpu, row) for row in csv.DictReader(_file))


def known(name: str) -> Gpu | None:
    """Return the GPU that the driver calls `name`, as in "NVIDIA A100-SXM4-80GB".

    None if it is not in the table.
    """
    bare = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name.strip()))
    return next((gpu for gpu in GPUS if re.fullmatch(gpu.pattern, bare)), None)

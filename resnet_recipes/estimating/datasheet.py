"""What GPUs can do by their datasheets, and the share of it that training a ResNet reaches."""

import re
from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU: rates from its datasheet, and shares of them fitted to published training speeds."""

    name: str
    pattern: str  # regular expression of the driver's name for it
    teraflops: float  # bf16 or fp16 with sums in fp32, dense, 10^12 per second
    terabytes: float  # memory traffic, 10^12 bytes per second
    gigabytes: float  # memory, 10^9 bytes
    issues: float  # thread instructions, 10^12 per second: multiprocessors x 128 x clock
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
#: and AD102 white papers. Shares: A100, V100 and 3090 from PyTorch and timm; convolutions of A100,
#: H100, H200 and L40S from MLPerf's logs (docs/performance.md); the others are guesses.
GPUS = (
    Gpu("V100", r"V100-(SXM2|SXM3|PCIE)-\d+GB.*", 125, 0.900, 16, 15.7, 0.85, 0.80, 0.80),
    Gpu("T4", r"T4", 65, 0.320, 16, 8.1, 0.50, 0.80, 0.80),
    Gpu("A100 40GB", r"A100-(SXM4|PCIE)-40GB", 312, 1.555, 40, 19.5, 0.85, 0.72, 0.75),
    Gpu("A100 80GB", r"A100-SXM4-80GB|A100 80GB PCIe", 312, 2.039, 80, 19.5, 0.85, 0.72, 0.75),
    Gpu("H100 PCIe", r"H100 PCIe", 756, 2.000, 80, 25.6, 0.65, 0.68, 0.70),
    Gpu("H100", r"H100 80GB HBM3", 989, 3.350, 80, 31.6, 0.72, 0.65, 0.65),
    Gpu("H200", r"H200", 989, 4.800, 141, 31.6, 0.80, 0.50, 0.63),
    Gpu("B200", r"B200", 2250, 8.000, 180, 35.0, 0.75, 0.40, 0.60),
    Gpu("L40S", r"L40S", 362, 0.864, 48, 45.8, 0.75, 0.66, 0.80),
    Gpu("L4", r"L4", 121, 0.300, 24, 15.1, 0.60, 0.85, 0.85),
    Gpu("RTX 3090", r"GeForce RTX 3090", 71, 0.936, 24, 17.8, 0.95, 0.95, 0.90),
    Gpu("RTX 4090", r"GeForce RTX 4090", 165, 1.008, 24, 41.3, 0.90, 0.85, 0.90),
)


def known(name: str) -> Gpu | None:
    """Return the GPU that the driver calls `name`, as in "NVIDIA A100-SXM4-80GB".

    None if it is not in the table.
    """
    bare = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name.strip()))
    return next((gpu for gpu in GPUS if re.fullmatch(gpu.pattern, bare)), None)

"""The launch of kernels, which bypasses the Triton launcher, with the installed version."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from resnet_recipes.ops.kernels import launch


@triton.jit
def double(x, y, count, block: tl.constexpr):
    """Write twice the values of x to y."""
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < count), mask=offsets < count)


class FakeH100:
    """A stand-in for an H100: Triton compiles for it, and its launches are recorded."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (1, "function", 32, 0, 1024),
            unload_module=lambda *_: None,
            get_device_properties=lambda _: {"max_shared_mem": 1 << 17},
        )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> str:
        return f"stream of {device}"

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def launcher_cls(self, source: object, metadata: object) -> Any:
        return lambda *arguments: self.launches.append(arguments)


@pytest.fixture
def fake_h100() -> Iterator[FakeH100]:
    """The device that Triton finds."""
    try:
        driver_before = driver.active
    except RuntimeError:  # there is no GPU
        driver_before = None
    driver.set_active(device := FakeH100())
    yield device
    driver.set_active(driver_before)


def test_repeated_kernel_launch_equals_launch_by_triton(fake_h100):
    x = torch.ones(64)
    y = torch.empty(64)
    z = torch.empty(64)
    for out in (y, z, z):
        launch(double, (2, 1, 1), ("float32",), x, out, 64, 32, num_warps=1)
    double[2, 1, 1](x, z, 64, 32, num_warps=1)  # launched by Triton
    first, *launches, expected = fake_h100.launches
    assert first[3:5] == ("stream of 0", "function")
    for recorded in launches:
        assert recorded[:6] == expected[:6]
        assert [*map(id, recorded[-4:-2])] == [id(x), id(z)]
        assert [*map(id, expected[-4:-2])] == [id(x), id(z)]
        assert recorded[-2:] == expected[-2:] == (64, 32)
        assert len(recorded) == len(expected)

"""Send small arrays from the host to a device."""

import numpy as np
import torch
from torch import Tensor


def send(drawn: np.ndarray, device: torch.device) -> Tensor:
    """Send a small array to `device` as a tensor, without waiting for the device."""
    tensor = torch.from_numpy(drawn)
    tensor = tensor.pin_memory() if device.type == "cuda" else tensor
    return tensor.to(device, non_blocking=True)

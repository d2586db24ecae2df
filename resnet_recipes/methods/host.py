"""Send small arrays from the host to a device."""

import numpy as np
import torch
from torch import Tensor


def send(drawn: np.ndarray, device: torch.device) -> Tensor:
    """Return a small array drawn on the host as a tensor on `device`, without waiting for the device."""
    return torch.from_numpy(drawn).to(device, non_blocking=True)

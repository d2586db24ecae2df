"""The folder of the null device, for its tests."""

from pathlib import Path

NULL_DEVICE = Path(__file__).parents[2] / "tools" / "null_device"

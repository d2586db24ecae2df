"""Packages that a tracker needs, and settings that it gets, for tests of trackers."""

import importlib.util

import pytest

from resnet_recipes.report.trackers import TRACKERS

TRACKED_SETTINGS = {
    "optimizer.lr": 2.0,
    "methods.ema.half_life": "100ba",
    "data.flip": True,
    "data.crop_scale": [0.5, 1.0],
}


def skip_without(name: str) -> pytest.MarkDecorator:
    package = TRACKERS[name][0]
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
    )

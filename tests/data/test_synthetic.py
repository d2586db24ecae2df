"""Synthetic images have learnable classes, and new noise in every epoch."""

import numpy as np

from resnet_recipes.data.synthetic import SYNTHETIC_CLASSES, SyntheticImages


def test_nearest_class_mean_separates_the_classes():
    images = SyntheticImages(32)
    train = images.batch(np.arange(60), 0)
    test = images.batch(np.arange(60, 100), 1)
    means = [
        train.pixels[train.labels == label].float().mean(0) for label in range(SYNTHETIC_CLASSES)
    ]
    nearest = [
        min(range(SYNTHETIC_CLASSES), key=lambda label: (image - means[label]).square().sum())
        for image in test.pixels.float()
    ]
    assert nearest == test.labels.tolist()


def test_synthetic_noise_depends_only_on_the_epoch():
    images = SyntheticImages(16)
    indices = np.arange(20)
    assert not np.array_equal(images.batch(indices, 0).pixels, images.batch(indices, 1).pixels)
    assert np.array_equal(
        images.batch(indices, 1).pixels, SyntheticImages(16).batch(indices, 1).pixels
    )


def test_synthetic_labels_match_the_facts():
    """A probe of a network with two classes needs this."""
    assert SyntheticImages(8, 2).batch(np.arange(6), 0).labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert SyntheticImages(8, 1000).batch(np.arange(12), 0).labels.max() == SYNTHETIC_CLASSES - 1

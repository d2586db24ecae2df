"""TrivialAugment is torchvision's, on an image's own randomness."""

import pickle

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import TrivialAugmentWide

from resnet_recipes.methods.trivial_augment import TrivialAugment

IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))


def test_result_is_torchvisions_for_the_seed_drawn():
    seed = int(np.random.default_rng(5).integers(2**63))
    torch.manual_seed(seed)
    expected = TrivialAugmentWide()(IMAGE)
    assert np.array_equal(TrivialAugment().augment_sample()(IMAGE, np.random.default_rng(5)), expected)


def test_global_randomness_is_left_alone_and_workers_can_have_it():
    augment = pickle.loads(pickle.dumps(TrivialAugment().augment_sample()))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    results = {augment(IMAGE, np.random.default_rng(seed)).tobytes() for seed in range(40)}
    assert torch.equal(torch.rand(3), expected)
    assert len(results) > 20

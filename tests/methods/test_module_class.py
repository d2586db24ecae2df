"""Surgery changes the function of a module and nothing else."""

import pytest
from torch import nn

from resnet_recipes.methods.module_class import adopt, release


class Loud(nn.ReLU):
    """A ReLU with a volume."""


def test_adopt_changes_only_the_class():
    conv = nn.Conv2d(3, 4, 3)
    weight, keys = conv.weight, list(conv.state_dict())

    class Marked(nn.Conv2d):
        pass

    adopt(conv, Marked, mark=3)
    assert (type(conv), conv.mark, conv.weight is weight, list(conv.state_dict())) == (
        Marked,
        3,
        True,
        keys,
    )
    release(conv, nn.Conv2d)
    assert type(conv) is nn.Conv2d
    with pytest.raises(TypeError, match="Conv2d was not built as a ReLU"):
        release(conv, nn.ReLU)


def test_adopt_rejects_class_without_direct_inheritance():
    with pytest.raises(TypeError, match="Loud is not a direct subclass of Conv2d"):
        adopt(nn.Conv2d(3, 4, 3), Loud)

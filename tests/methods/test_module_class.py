"""The class of a module is changed in place, and nothing else."""

import pytest
from torch import nn

from resnet_recipes.methods.module_class import change_class, restore_class


class Loud(nn.ReLU):
    """A ReLU with a volume."""


def test_change_class_changes_only_the_class():
    conv = nn.Conv2d(3, 4, 3)
    weight = conv.weight
    keys = list(conv.state_dict())

    class Marked(nn.Conv2d):
        pass

    change_class(conv, Marked, mark=3)
    assert (type(conv), conv.mark, conv.weight is weight, list(conv.state_dict())) == (
        Marked,
        3,
        True,
        keys,
    )
    restore_class(conv, nn.Conv2d)
    assert type(conv) is nn.Conv2d
    with pytest.raises(TypeError, match="Conv2d was not built as a ReLU"):
        restore_class(conv, nn.ReLU)


def test_change_class_rejects_class_without_direct_inheritance():
    with pytest.raises(TypeError, match="Loud is not a direct subclass of Conv2d"):
        change_class(nn.Conv2d(3, 4, 3), Loud)

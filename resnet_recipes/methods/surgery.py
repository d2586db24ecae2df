"""Change the behaviour of a module in a built model, and nothing else about it."""

from torch import nn


def adopt(module: nn.Module, kind: type[nn.Module], **attributes: object) -> None:
    """Turn `module` into a `kind`, a subclass of its class, in place.

    Its parameters, buffers, state-dict keys, training flag and place in the model are kept, so the
    same weights load into the changed and the plain model. `kind.__init__` is not run; pass
    whatever else `kind` needs in `attributes`.
    """
    if kind.__mro__[1] is not type(module):
        raise TypeError(f"{kind.__name__} is not a direct subclass of {type(module).__name__}")
    module.__class__ = kind
    for name, value in attributes.items():
        setattr(module, name, value)


def release(module: nn.Module) -> None:
    """Undo `adopt`: restore the class that `module` was built with."""
    module.__class__ = type(module).__mro__[1]

"""Change what a module of a built model does, and nothing else about it."""

from torch import nn


def adopt(module: nn.Module, kind: type[nn.Module], **attributes: object) -> None:
    """Turn `module` into a `kind`, a subclass of its class, in place.

    Its Parameters, buffers, state-dict keys, training flag and place in the model are kept, so weights load into the
    changed and the plain model alike. `kind.__init__` is not run: whatever else `kind` needs comes in `attributes`.
    """
    if kind.__mro__[1] is not type(module):
        raise TypeError(f"{kind.__name__} is not a direct subclass of {type(module).__name__}")
    module.__class__ = kind
    for name, value in attributes.items():
        setattr(module, name, value)


def release(module: nn.Module) -> None:
    """Undo `adopt`: give `module` back the class it was built with."""
    module.__class__ = type(module).__mro__[1]

"""Change the class of a module in a built model and keep everything else."""

from torch import nn


def change_class(module: nn.Module, new_class: type[nn.Module], **attributes: object) -> None:
    """Change the class of `module` to `new_class`, a direct subclass of its class, in place.

    Its parameters, buffers, state-dict keys, training flag and place in the model are kept. The
    same weights load into the changed and the original model. `new_class.__init__` is not run; pass
    the attributes that it needs in `attributes`. Raises TypeError for any other class.
    """
    if new_class.__bases__[0] is not type(module):
        raise TypeError(f"{new_class.__name__} is not a direct subclass of {type(module).__name__}")
    module.__class__ = new_class
    for name, value in attributes.items():
        setattr(module, name, value)


def restore_class(module: nn.Module, original_class: type[nn.Module]) -> None:
    """Undo every `change_class` of a module that was built as an `original_class`.

    Raises TypeError if it was not.
    """
    if not isinstance(module, original_class):
        raise TypeError(f"{type(module).__name__} was not built as a {original_class.__name__}")
    module.__class__ = original_class

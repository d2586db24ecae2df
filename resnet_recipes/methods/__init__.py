"""All speed-up methods; the tuple is the registry, the schema and the order of composition."""

from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Optional

from resnet_recipes.base.section import Section
from resnet_recipes.methods.base import Batch as Batch
from resnet_recipes.methods.base import Method as Method
from resnet_recipes.methods.base import Now as Now
from resnet_recipes.methods.bce_loss import BCELoss as BCELoss
from resnet_recipes.methods.blurpool import BlurPool as BlurPool
from resnet_recipes.methods.class_weights import ClassWeights as ClassWeights
from resnet_recipes.methods.color_jitter import ColorJitter as ColorJitter
from resnet_recipes.methods.colout import ColOut as ColOut
from resnet_recipes.methods.cutmix import CutMix as CutMix
from resnet_recipes.methods.distill import Distill as Distill
from resnet_recipes.methods.ema import EMA as EMA
from resnet_recipes.methods.flips import Flips as Flips
from resnet_recipes.methods.increasing_randaugment import (
    IncreasingRandAugment as IncreasingRandAugment,
)
from resnet_recipes.methods.label_smoothing import LabelSmoothing as LabelSmoothing
from resnet_recipes.methods.mixup import MixUp as MixUp
from resnet_recipes.methods.mixup_or_cutmix import MixUpOrCutMix as MixUpOrCutMix
from resnet_recipes.methods.plug_ins import find_plug_ins
from resnet_recipes.methods.progressive_resizing import ProgressiveResizing as ProgressiveResizing
from resnet_recipes.methods.randaugment import RandAugment as RandAugment
from resnet_recipes.methods.random_erasing import RandomErasing as RandomErasing
from resnet_recipes.methods.random_translation import RandomTranslation as RandomTranslation
from resnet_recipes.methods.sam import SAM as SAM
from resnet_recipes.methods.stochastic_depth import StochasticDepth as StochasticDepth
from resnet_recipes.methods.trivial_augment import TrivialAugment as TrivialAugment

#: Built-in methods; their hooks run in this order.
_OURS: tuple[type[Method], ...] = (
    BlurPool,
    StochasticDepth,
    BCELoss,
    Flips,
    ColorJitter,  # before methods that fill uncovered areas, so that its mean covers only the image
    RandAugment,
    IncreasingRandAugment,
    TrivialAugment,
    RandomTranslation,  # before methods that change the size: it translates the loader's pixels
    ColOut,  # before resizing: 176 -> 167 -> 100 pixels; after it, the sizes would be 104 -> 98
    ProgressiveResizing,
    # after everything that moves pixels, so that boxes keep their size in the final image
    RandomErasing,
    # before mixing: the recipes were tuned without smoothing the partner's label
    LabelSmoothing,
    MixUp,
    CutMix,
    MixUpOrCutMix,
    ClassWeights,  # after mixing: a mixed target uses the mean weight of its classes
    Distill,  # after methods that change images: the teacher sees the same images as the network
    SAM,
    EMA,
)

#: Methods of other installed packages.
INSTALLED = tuple(find_plug_ins({method.name for method in _OURS}))

#: All methods. Methods of other packages run after the built-in ones, but before SAM and EMA.
ORDER = (*_OURS[:-2], *INSTALLED, *_OURS[-2:])


def list_rivals(method: type[Method]) -> list[str]:
    """Return the names of the methods that cannot be combined with a method."""
    rivals = (other for other in ORDER if method.group and other.group == method.group)
    return sorted(other.name for other in rivals if other is not method)


if TYPE_CHECKING:  # type checkers cannot know the methods of other packages

    class Methods(Section):
        """The methods of a recipe."""

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Method | None) -> None: ...
else:
    _FIELDS = [(cls.name, Optional[cls], field(default=None)) for cls in ORDER]  # noqa: UP045
    #: The `methods` section of a recipe: a method is on if its key is present.
    Methods = make_dataclass(
        "Methods", _FIELDS, bases=(Section,), namespace={"_prefix": "methods."}
    )

"""The validation images that a run's final network classifies correctly."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.reading import read_json
from resnet_recipes.run_folder import CORRECT_IMAGES


class CorrectImages(NamedTuple):
    """Whether each validation image is classified correctly, in evaluation order."""

    digest: str  # digest of image names and sizes; equal for runs on the same images
    flags: str  # "1" if the image is classified correctly, else "0"; one character per image

    def write(self, folder: Path) -> None:
        """Write the flags to a run folder."""
        atomic.write_text(folder / CORRECT_IMAGES, json.dumps(self._asdict()) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "CorrectImages | None":
        """Return the flags of a run, or None if the file is absent or its fields are invalid.

        Raises NotReadyError if the file cannot be read as a JSON object.
        """
        match read_json(folder / CORRECT_IMAGES, may_be_absent=True):
            case {"digest": str(digest), "flags": str(flags)} if re.fullmatch("[01]+", flags):
                return cls(digest, flags)
        return None

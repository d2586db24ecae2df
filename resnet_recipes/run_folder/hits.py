"""The validation images that a run's final network classifies correctly, one bit each."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.reading import read_json
from resnet_recipes.run_folder import HITS


class Hits(NamedTuple):
    """One flag per validation image, in evaluation order."""

    digest: str  # digest of image names and sizes; equal for runs on the same images
    flags: str  # "1" if the image is classified correctly, else "0"; one character per image

    def write(self, folder: Path) -> None:
        """Write the flags to a run folder as a hexadecimal number. Raises OSError."""
        number = f"{int(self.flags, 2):x}"
        content = {"digest": self.digest, "images": len(self.flags), "correct": number}
        atomic.write_text(folder / HITS, json.dumps(content) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Hits | None":
        """Return the flags of a run, or None. Raises NotReadyError if they are damaged."""
        match read_json(folder / HITS, may_be_absent=True):
            case {"digest": str(digest), "images": int(images), "correct": str(number)}:
                if re.fullmatch("[0-9a-f]+", number) and len(number) <= images // 4 + 1:
                    flags = f"{int(number, 16):0{images}b}"
                    return cls(digest, flags) if len(flags) == images else None
        return None

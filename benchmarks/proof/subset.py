"""Link every tenth class of Tiny ImageNet into train/CLASS and val/CLASS folders.

    python benchmarks/proof/subset.py TINY OUT [--first 0]

TINY is the folder as distributed by Stanford: train/CLASS/images/*.JPEG, val/images/*.JPEG and
val/val_annotations.txt, which lists the class of each validation image. Classes are counted from 0
in the order of their names; `--first 5` takes 5, 15, ... 195. All images of a class are used.
"""

import argparse
from pathlib import Path


def main() -> None:
    """Link the images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tiny", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0, choices=range(10))
    arguments = parser.parse_args()
    names = sorted(path.parent.name for path in arguments.tiny.glob("train/*/images"))
    if not (names and (arguments.tiny / "val" / "val_annotations.txt").is_file()):
        parser.exit(2, f"{arguments.tiny} is not Tiny ImageNet as Stanford distributes it\n")
    classes = names[arguments.first :: 10]
    count = 0
    for split, source, name in list_images(arguments.tiny, set(classes)):
        target = arguments.out / split / name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(source.resolve())
        count += 1
    print(f"{count:,} images of {len(classes)} classes in {arguments.out}")


def list_images(tiny: Path, classes: set[str]) -> list[tuple[str, Path, str]]:
    """Return the split, file and class of each image of these classes."""
    rows = [
        ("train", file, name)
        for name in sorted(classes)
        for file in sorted((tiny / "train" / name / "images").iterdir())
    ]
    for line in (tiny / "val" / "val_annotations.txt").read_text().splitlines():
        file, name, *_ = line.split("\t")
        if name in classes:
            rows.append(("val", tiny / "val" / "images" / file, name))
    return rows


if __name__ == "__main__":
    main()

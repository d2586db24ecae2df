"""Check whether a data folder is what a run needs."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig, are_imagenets
from resnet_recipes.data.files.layout import listing_of, parts
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.root import SPLITS, root_problem
from resnet_recipes.doctor import Finding, Progress, checked, few, finding_of
from resnet_recipes.doctor.beton import check_betons
from resnet_recipes.doctor.image import ODDITIES, check_image

IMAGENET = {"train": 1_281_167, "val": 50_000}


def check_data(
    root: Path, images: bool = True, progress: Progress = lambda done, total: None
) -> list[Finding]:
    """Check a folder of class folders or .beton files, or one .beton file.

    With `images`, decode every image.
    """
    root = Path(root)
    betons = _betons(root)
    found = list(check_betons(betons, images, progress))
    if not betons and (problem := root_problem(str(root.absolute()))):
        fix = problem.fix.replace("data=", "resnet-recipes doctor data ")
        return [finding_of(problem._replace(fix=fix))]
    if betons and not any((root / split).is_dir() for split in SPLITS):
        lacking = [
            split
            for split in SPLITS
            if root / f"{split}.beton" not in betons and root not in betons
        ]
        fix = "resnet-recipes convert SRC DST"
        return found + [Finding("fix", f"{root} has no {split}.beton", fix) for split in lacking]
    config = DataConfig(root=str(root.absolute()))
    try:
        if "val" not in parts(root):
            fix = (
                "train with data.val_share=0.1, which sets a tenth of each class aside, as "
                "this check does"
            )
            found.append(Finding("warn", f"{root} has no validation images", fix))
            config.val_share = 0.1
        found += _check_folders(config)
    except NotReadyError as error:
        return found + [finding_of(problem) for problem in error.problems]
    return found + (list(_check_images(config, progress)) if images else [])


def _betons(root: Path) -> list[Path]:
    """Return `root` itself if it is a .beton file, else those that a run would read in it."""
    if root.suffix == ".beton":
        return [root]
    return [path for split in SPLITS if (path := root / f"{split}.beton").exists()]


def _check_folders(config: DataConfig) -> Iterator[Finding]:
    """Count the images, as a run does. Raises NotReadyError with what would prevent the run."""
    facts = survey(config, lambda line: None)
    for split, total in zip(SPLITS, (facts.train_examples, facts.eval_examples), strict=True):
        yield Finding("ok", f"{split}: {total:,} images in {len(facts.classes):,} classes")
        if are_imagenets(facts.classes) and total != IMAGENET[split]:
            what = (
                f"{split} looks like ImageNet, which should have {IMAGENET[split]:,} images there"
            )
            yield Finding("warn", what, "was everything unpacked?")
    yield from (Finding("ok", detail) for detail in facts.details)
    yield from (Finding("warn", note) for note in facts.notes)


def _check_images(config: DataConfig, progress: Progress) -> Iterator[Finding]:
    """Decode every image of both splits, and look for the same file in both."""
    odd = defaultdict(list)
    bad = {split: [] for split in SPLITS}
    digests = {split: {} for split in SPLITS}
    files = [(split, path) for split in SPLITS for path in listing_of(config, split).paths]
    for (split, path), one in checked(files, lambda file: check_image(file[1]), progress):
        digests[split][one.digest] = path
        if one.bad:
            bad[split].append(f"{path} {one.bad}")
        for name in one.oddities:
            odd[name].append(path)
    for split, said in bad.items():
        skip = (
            "; or train with data.on_bad_image=skip, which replaces them in each epoch"
            if split == "train"
            else ""
        )
        if said:
            what = f"unreadable images in {split}: {len(said):,}"
            yield Finding("fix", what, f"replace or delete them{skip}", few(said))
    for name, paths in odd.items():
        level, what = ODDITIES[name]
        yield Finding(level, f"{what}: {len(paths):,}", paths=few(paths))
    shared = [
        digests["val"][digest] for digest in digests["val"].keys() & digests["train"].keys() - {b""}
    ]
    if shared:
        what = f"validation images that are also training images, byte for byte: {len(shared):,}"
        yield Finding("warn", what, "remove them from train/", few(shared))
    yield Finding(
        "ok", f"{len(files) - sum(map(len, bad.values())):,} of {len(files):,} images were decoded"
    )

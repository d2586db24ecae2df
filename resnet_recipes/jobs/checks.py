"""Check a run before it starts: decode its images, and try its last steps."""

from collections.abc import Iterator

from resnet_recipes.base.errors import Command, Hint, NotReadyError, Problem
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.base.text import Say
from resnet_recipes.data.base import DataConfig
from resnet_recipes.doctor.data import DecodedImages, decode_some
from resnet_recipes.jobs.task import run_sample
from resnet_recipes.planning.plan import Plan

TRIED_STEPS = 2

DECODE_SECONDS = 60.0  # decoding images to try a run
VALIDATION_SECONDS = 5.0  # decoding validation images before each run


def try_run(plan: Plan, say: Say) -> None:
    """Decode images, train the last steps of a run, evaluate once and save once.

    Nothing is kept, except the logs if a rank fails. Raises NotReadyError if images cannot be read,
    NotDoneError if a rank fails or is stopped.
    """
    if _has_image_files(plan):
        _check_images(plan.recipe.data, say)
    last = (max(0, plan.total_steps - TRIED_STEPS), plan.total_steps)
    with run_sample(plan, [last], say):
        pass


def check_validation_images(plan: Plan) -> None:
    """Decode the validation images of a run on local files, for at most a few seconds.

    Raises NotReadyError if some are unreadable: the first evaluation, perhaps hours later, would
    end the run.
    """
    if _has_image_files(plan):
        check_validation_folder(plan.recipe.data)


def check_validation_folder(config: DataConfig) -> None:
    """Decode the validation images in a folder, for at most a few seconds.

    Raises NotReadyError if some are unreadable.
    """
    images = decode_some(config, VALIDATION_SECONDS, ("val",))
    NotReadyError.raise_if_any(_find_image_problems(config, images))


def _has_image_files(plan: Plan) -> bool:
    """Return whether the images of a run are files on this machine, not .beton files."""
    return plan.facts.backend == "torchvision" and not is_fetched(plan.recipe.data.root)


def _check_images(config: DataConfig, say: Say) -> None:
    """Decode all images, for at most a minute.

    Raises NotReadyError if some are unreadable, except training images that the run skips.
    """
    images = decode_some(config, DECODE_SECONDS)
    command = _format_doctor_command(config)
    if config.on_bad_image == "skip" and (skipped := images.bad.pop("train")):
        say(f"skipping unreadable images in train: {len(skipped):,}; {command} lists them")
    NotReadyError.raise_if_any(_find_image_problems(config, images))
    is_complete = images.decoded == images.total
    more = "" if is_complete else f" in {DECODE_SECONDS:.0f} s; {command} decodes all"
    say(f"decoded {images.decoded:,} of {images.total:,} images{more}")


def _find_image_problems(config: DataConfig, images: DecodedImages) -> Iterator[Problem]:
    more = "" if "train" in images.bad else "; only validation images were checked"
    if config.on_bad_image == "skip":
        more = "; data.on_bad_image=skip is for training images"
    for split, bad in images.bad.items():
        skip = (
            "data.on_bad_image=skip" if split == "train" else Hint(f"replace or delete them{more}")
        )
        if bad:
            clause = f"has unreadable images in {split}: {len(bad):,}, such as {bad[0]}"
            yield Problem("data.root", config.root, clause, (skip, _format_doctor_command(config)))


def _format_doctor_command(config: DataConfig) -> Command:
    return Command.of("resnet-recipes", "doctor", "data", config.root)

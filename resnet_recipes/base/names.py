"""Valid names, short names of settings, and the documentation URL."""

import re

DOCS = "https://resnet-recipes.github.io/resnet-recipes"  # the site built from docs/*.md

#: Name of a recipe: the stem of its file, and its `name`.
RECIPE = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: Name of a run: the folder of its results.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")

#: A part of a repository name on the Hugging Face Hub.
_REPOSITORY_PART = r"[A-Za-z0-9]([\w.-]{0,94}\w)?"

#: A Hugging Face repository, as in a recipe: hf:USER/NAME.
REPOSITORY = re.compile(rf"hf:(?!.*(--|\.\.)){_REPOSITORY_PART}/{_REPOSITORY_PART}(?<!\.git)")

#: Published weights, in `model.weights`; anything else is a path.
PUBLISHED_WEIGHTS = re.compile(
    rf"torchvision(:\w+)?|timm:[A-Za-z0-9][\w.-]{{0,95}}|{REPOSITORY.pattern}"
)

#: Short names and their meanings; the value replaces {}.
SHORT_NAMES = {
    "epochs": ("max_duration={}ep", "scale_schedule_ratio=1.0"),
    "ssr": ("scale_schedule_ratio={}",),
    "lr": ("optimizer.lr={}",),
    "wd": ("optimizer.weight_decay={}",),
    "bs": ("batch.global_size={}",),
    "gpus": ("launch.gpus={}",),
    "data": ("data.root={}",),
    "run": ("run.name={}",),
    "workers": ("data.workers={}",),
    "cache": ("data.memory_pixels={}",),
    "budget": ("launch.budget={}",),
    "stop_at_top1": ("evaluation.stop_at_top1={}",),
}

#: The short name of each setting that has one.
_SHORT_OF = {
    form[0].removesuffix("={}"): name for name, form in SHORT_NAMES.items() if len(form) == 1
}

DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?")


def expand_short_name(name: str, value: str) -> tuple[str, ...]:
    """Return the settings that a short name changes, or the name itself; {} marks `value`."""
    if name == "epochs" and not DECIMAL.fullmatch(value):
        return ("max_duration={}", "scale_schedule_ratio=1.0")  # epochs=90ep
    escaped = name.replace("{", "{{").replace("}", "}}")
    return SHORT_NAMES.get(name, (f"{escaped}={{}}",))


def list_keys(argument: str) -> list[str]:
    """Return the keys of an argument in problems: the argument, and its settings by each name."""
    name, _, value = argument.lstrip("~").partition("=")
    return [argument, name, *(form.partition("=")[0] for form in expand_short_name(name, value))]


def get_full_name(name: str) -> str:
    """Return the full name of a setting, "optimizer.lr" for "lr"."""
    return expand_short_name(name, "1")[0].partition("=")[0]


def find_short_name(key: str) -> str:
    """Return the short name of a setting, "lr" for "optimizer.lr", or else its full name."""
    return _SHORT_OF.get(key, key)

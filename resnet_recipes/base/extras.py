"""Optional packages, and the commands that install them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from resnet_recipes.base.errors import Command, Problem

_NAME = "resnet-recipes"

#: Each tracker, with the required package and the extra that installs it.
TRACKERS = {
    "tensorboard": ("tensorboardX", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "csv": ("csv", ""),
}

#: Environment variables with credentials for the service that an extra uses.
SECRETS = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_URI",),
    "hub": ("HF_TOKEN",),
}
_BUCKET_VARIABLES = {"s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}


def find_needed_extras(
    data: str, values: Iterable[str], log_to: Iterable[str]
) -> dict[str, Sequence[str]]:
    """Return the extras that a run needs, and the names of the secrets of each."""
    scheme, is_address, _ = data.partition("://")
    extras: dict[str, Sequence[str]] = {
        extra: SECRETS.get(extra, ()) for name in log_to if (extra := TRACKERS[name][1])
    }
    extras |= {"remote": _BUCKET_VARIABLES.get(scheme, ())} if is_address else {}
    schemes = {name.partition(":")[0] for name in values}
    return extras | {
        extra: SECRETS.get(extra, ())
        for scheme, extra in (("timm", "timm"), ("hf", "hub"))
        if scheme in schemes
    }


def find_extra_problems(key: str, value: object, extra: str, *packages: str) -> Iterator[Problem]:
    """Yield a problem if any of an extra's packages is not installed."""
    if absent := [name for name in packages if find_spec(name) is None]:
        clause = f"needs packages that are not installed: {', '.join(absent)}"
        yield Problem(key, value, clause, suggest_install(extra))


def suggest_install(extra: str) -> Command:
    """Return the command that installs an extra.

    It names the checkout that this package was installed from, because the package is not on any
    index. Without a checkout it names the packages of the extra.
    """
    tool = ["pip", "install"] if find_spec("pip") else ["uv", "pip", "install"]
    if checkout := _find_checkout():
        path = "." if checkout == Path.cwd() else str(checkout)
        return Command.of(*tool, f"{path}[{extra}]")
    requirements = [line.partition(";") for line in distribution(_NAME).requires or []]
    names = [
        name for name, _, when in requirements if when.split() == ["extra", "==", f'"{extra}"']
    ]
    return Command.of(*tool, *(name.strip() for name in names))


def _find_checkout() -> Path | None:
    """Return the folder with this package's source, if it is on this machine."""
    path = Path(__file__).parents[2]
    try:
        installed = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
        path = Path(unquote(urlsplit(installed["url"]).path))
    except (PackageNotFoundError, KeyError):
        pass  # the package runs from its source tree
    return path if (path / "pyproject.toml").is_file() else None

"""Optional packages: how to add them to the installation at hand."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from resnet_recipes.base.errors import Problem

_NAME = "resnet-recipes"

#: Each tracker with the package that it needs and the extra that installs it.
TRACKERS = {
    "tensorboard": ("tensorboardX", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "csv": ("csv", ""),
}


#: Environment variables that log in to what an extra reads or writes.
SECRETS = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_URI",),
    "hub": ("HF_TOKEN",),
}
_OF_BUCKETS = {"s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}


def needed(data: str, settings: Iterable[str], log_to: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the extras that a run needs, by the values of its settings, each with its secrets."""
    scheme, is_address, _ = data.partition("://")
    found: dict[str, Sequence[str]] = {
        extra: SECRETS.get(extra, ()) for name in log_to if (extra := TRACKERS[name][1])
    }
    found |= {"remote": _OF_BUCKETS.get(scheme, ())} if is_address else {}
    schemes = {name.partition(":")[0] for name in settings}
    return found | {
        extra: SECRETS.get(extra, ())
        for scheme, extra in (("timm", "timm"), ("hf", "hub"))
        if scheme in schemes
    }


def lacking(key: str, value: object, extra: str, *packages: str) -> Iterator[Problem]:
    """Yield that something needs packages of an extra, if any is not installed."""
    if absent := [name for name in packages if find_spec(name) is None]:
        rule = f"needs packages that are not installed: {', '.join(absent)}"
        yield Problem(key, value, rule, remedy(extra))


def remedy(extra: str) -> str:
    """Return the command that installs an extra.

    It names the checkout that this package was installed from, for the package is on no index, or
    else the packages of the extra.
    """
    tool = "pip install" if find_spec("pip") else "uv pip install"
    if checkout := _checkout():
        place = "." if checkout == Path.cwd() else str(checkout)
        return f"{tool} {shlex.quote(f'{place}[{extra}]')}"
    needed = distribution(_NAME).requires or []
    found = [need.partition(";") for need in needed]
    names = [need for need, _, when in found if when.split() == ["extra", "==", f'"{extra}"']]
    return f"{tool} {shlex.join(name.strip() for name in names)}"


def _checkout() -> Path | None:
    """Return the folder with this package's source, if it is on this machine."""
    place = Path(__file__).parents[2]
    try:
        installed = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
        place = Path(unquote(urlsplit(installed["url"]).path))
    except (PackageNotFoundError, KeyError):
        pass  # it is run from its source
    return place if (place / "pyproject.toml").is_file() else None

"""Networks on the Hugging Face Hub, `hf:USER/NAME`; only a command that names one goes there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base import names
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.extras import lacking

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: The weights file of a repository: what `export --to safetensors` writes.
WEIGHTS = "model.safetensors"


def repository(key: str, place: str) -> str:
    """Return USER/NAME of hf:USER/NAME. Raises RecipeError if `place` is none."""
    if not names.REPOSITORY.fullmatch(place):
        raise RecipeError.of(key, place, "must name a repository", "hf:USER/NAME")
    return place.removeprefix("hf:")


def fetched(place: str) -> Path:
    """Return the weights file of a repository, downloaded into the Hub's cache if it is newer."""
    name = repository("load", place)
    with _hub(place, f"hf download {name} {WEIGHTS}") as hub:
        return Path(hub.hf_hub_download(name, WEIGHTS))


def push(folder: Path, place: str) -> str:
    """Upload an export in one commit, into a new repository or an existing one; return its URL."""
    name = repository("--push", place)
    with _hub(place, f"the export is complete; to repeat:  hf upload {name} {folder}") as hub:
        hub.create_repo(name, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Export a network")
        return f"{hub.endpoint}/{name}"


def missing() -> Iterator[Problem]:
    """Yield what is missing to talk to the Hub."""
    return lacking("hf", None, "hub", "huggingface_hub")


@contextmanager
def _hub(place: str, again: str) -> Iterator["HfApi"]:
    """Talk to the Hub. Raises NotReadyError for whatever goes wrong there or on the way."""
    NotReadyError.refuse(missing())
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield HfApi()
    except (OSError, HTTPError) as error:
        answer = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        rule = {
            401: "no access: you are not logged in, the token is invalid, or there is no such "
            "repository",
            403: "no access: the token may not write there",
            404: "does not exist, or has no " + WEIGHTS,
        }.get(answer, f"did not work: {(str(error).splitlines() or ['no answer'])[0][:200]}")
        fix = "hf auth login" if answer in (401, 403) else again
        raise NotReadyError.of(place, None, rule, fix) from None

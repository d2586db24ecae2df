"""Networks on the Hugging Face Hub, `hf:USER/NAME`. Only commands that name one use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from resnet_recipes.base import atomic, names
from resnet_recipes.base.errors import Command, Hint, NotReadyError, Problem, RecipeError, Value
from resnet_recipes.base.extras import find_extra_problems
from resnet_recipes.base.paths import get_cache_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: Name of the weights file in a repository, as `export --to safetensors` writes it.
HUB_WEIGHTS = "model.safetensors"


def parse_repository(key: str, address: str) -> str:
    """Return the USER/NAME in hf:USER/NAME. Raises RecipeError if `address` is not a repository."""
    if not names.REPOSITORY.fullmatch(address):
        full = f"hf:{address}"
        fix = Value(full) if names.REPOSITORY.fullmatch(full) else Hint("hf:USER/NAME")
        raise RecipeError.of(key, address, "must name a repository", fix)
    return address.removeprefix("hf:")


def get_copy_path(name: str) -> Path:
    """Return the path of the local copy of a repository's weights file."""
    return get_cache_folder() / "hub" / name.replace("/", "--") / HUB_WEIGHTS


def fetch(address: str) -> Path:
    """Return the local copy of a repository's weights file, downloaded if it is outdated.

    Raises RecipeError if `address` is not a repository, NotReadyError if the Hub fails.
    huggingface_hub 2.4 names its cache files by a server's headers, so a malicious mirror could
    write anywhere. Here nothing that a server sends becomes part of a path.
    """
    name = parse_repository("load", address)
    path = get_copy_path(name)
    etag = path.with_suffix(".etag")
    with _open_hub(address, Command.of("hf", "download", name, HUB_WEIGHTS)) as hub:
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(name, HUB_WEIGHTS, endpoint=hub.endpoint)
        metadata = hub.get_hf_file_metadata(url=url)
        state = f"{metadata.etag} {metadata.size}\n"
        if not (path.is_file() and etag.is_file() and etag.read_text() == state):
            path.parent.mkdir(parents=True, exist_ok=True)
            etag.unlink(missing_ok=True)
            _download(url, metadata.size, path)
            atomic.write_text(etag, state)
    return path


def _download(url: str, size: int | None, path: Path) -> None:
    from huggingface_hub import get_token

    request = Request(url)
    if token := get_token():  # a redirect does not forward this header
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urlopen(request, timeout=30) as response, atomic.replace_file(path) as file:
        received = 0
        while block := response.read(1 << 20):
            received += len(block)
            if size is None or received > size:
                break
            file.write(block)
        if received != size:
            raise OSError(f"the Hub sent {received:,} bytes of {HUB_WEIGHTS}, but announced {size}")


def push(folder: Path, address: str) -> str:
    """Upload an export in one commit to a new or existing repository; return its URL.

    Raises RecipeError if `address` is not a repository, NotReadyError if the Hub fails.
    """
    name = parse_repository("--push", address)
    upload = Command.of("hf", "upload", name, str(folder))
    with _open_hub(address, upload, Hint("the export is complete")) as hub:
        hub.create_repo(name, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Export a network")
        return f"{hub.endpoint}/{name}"


def find_package_problems() -> Iterator[Problem]:
    """Yield a problem if a package that the Hub needs is not installed."""
    return find_extra_problems("hf", None, "hub", "huggingface_hub")


@contextmanager
def _open_hub(address: str, *repeat: str) -> Iterator["HfApi"]:
    """Yield a client of the Hub. Raises NotReadyError if it fails; `repeat` is a fix."""
    NotReadyError.raise_if_any(find_package_problems())
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield HfApi()
    except Exception as error:  # the library may raise any exception for a response
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        reason = (str(error).splitlines() or ["no response"])[0][:200]
        if not isinstance(error, OSError | HTTPError | ValueError):
            reason = f"the response cannot be read: {type(error).__name__}: {reason}"
        clause = {
            401: "cannot be accessed: you are not logged in, the token is invalid, or there is no "
            "such repository",
            403: "cannot be written to with this token",
            404: "does not exist, or has no " + HUB_WEIGHTS,
        }.get(status, f"cannot be accessed: {reason}")
        fix = Command("hf auth login") if status in (401, 403) else repeat
        raise NotReadyError.at(address, clause, fix) from None

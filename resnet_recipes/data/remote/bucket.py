"""Objects in a bucket, through fsspec."""

import logging
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec

from resnet_recipes.data.remote.store import RemoteFile, Store

#: What says whether an object has changed, by the first that a store gives.
_VERSIONS = ("ETag", "generation", "created", "LastModified")


class Bucket(Store):
    """The objects below an address."""

    def __init__(self, address: str):
        super().__init__(address)
        self._scheme = address.partition("://")[0]
        # what goes wrong is said once, by an error
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        self._files = fsspec.filesystem(
            self._scheme, use_listings_cache=False, skip_instance_cache=True
        )

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds to wait; none for Google's store, of which gcsfs asks again for a minute."""
        return () if self._scheme == "gs" else super().waits

    def _look(self, name: str) -> RemoteFile:
        with _as_system_errors():
            said = self._said(f"{self.address}/{name}")
        version = next((str(said[key]) for key in _VERSIONS if said.get(key)), "")
        return RemoteFile(name, int(said["size"]), version, _md5(said))

    def _read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        with _as_system_errors():
            return self._files.cat_file(f"{self.address}/{remote.name}", start=start, end=end)

    def _said(self, path: str) -> dict[str, Any]:
        """Return what the store says of an object."""
        if self._scheme == "s3":
            # what s3fs passes on does not tell how an object is encrypted
            bucket, key, _ = self._files.split_path(path)
            said = self._files.call_s3("head_object", Bucket=bucket, Key=key)
            return said | {"size": said["ContentLength"]}
        said = self._files.info(path)
        if said["type"] != "file":
            raise FileNotFoundError(path)
        return said


def _md5(said: dict[str, Any]) -> str:
    """Return an object's MD5 in hex, if the store gives it."""
    if "md5Hash" in said:  # Google's
        return b64decode(said["md5Hash"]).hex()
    # S3's ETag is an MD5, unless an object came in parts, or its key is a customer's
    etag = str(said.get("ETag", "")).strip('"')
    is_md5 = (
        said.get("ServerSideEncryption") in (None, "AES256") and "SSECustomerAlgorithm" not in said
    )
    return etag if is_md5 and re.fullmatch("[0-9a-f]{32}", etag) else ""


@contextmanager
def _as_system_errors() -> Iterator[None]:
    """Raise OSError for the errors of all the libraries that talk to stores."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if "Credentials" in type(error).__name__:  # missing or expired
            raise PermissionError(str(error)) from None
        raise OSError(str(error) or type(error).__name__) from None

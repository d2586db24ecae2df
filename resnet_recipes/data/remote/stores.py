"""Stores: a web server, read in ranges, or a bucket, through fsspec.

The fsspec HTTPS reader loads responses of any length into memory, and ignores whether the server
sent the requested range.
"""

import logging
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import fsspec
import urllib3

from resnet_recipes.base.errors import Hint, NotReadyError
from resnet_recipes.data.remote.base import RemoteFile, Store

_TIMEOUT = urllib3.Timeout(connect=10, read=30)  # seconds; read: between two bytes
_REDIRECTS = urllib3.Retry(total=5, connect=0, read=0, status=0, other=0)

_NO_RANGES = "comes from a server without HTTP range requests"
_COPY_IT = Hint("copy it to this machine, and pass that folder")

#: Fields that identify the version of an object; the first one present is used.
_VERSIONS = ("ETag", "generation", "created", "LastModified")


class Web(Store):
    """The files below an http or https URL."""

    def __init__(self, address: str, connections: int):
        super().__init__(address)
        url = urlsplit(address)
        proxy = None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)
        self._pool = (
            urllib3.ProxyManager(proxy, maxsize=connections)
            if proxy
            else urllib3.PoolManager(maxsize=connections)
        )

    def _describe_file(self, name: str) -> RemoteFile:
        with self._request("HEAD", name, {}) as response:
            length, md5 = (
                response.headers.get(key, "") for key in ("Content-Length", "Content-MD5")
            )
            if not re.fullmatch("[0-9]{1,18}", length):
                raise self.make_error(
                    name, "cannot be fetched: its server does not send its length"
                )
            return RemoteFile(name, int(length), _get_version(response), _decode_md5(md5))

    def _read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        headers = {"Range": f"bytes={start}-{end - 1}"}
        with self._request("GET", remote.name, headers) as response:
            if response.status == 200 and (start, end) != (0, remote.size):
                raise self.make_error(remote.name, _NO_RANGES, _COPY_IT)
            expected = f"bytes {start}-{end - 1}/{remote.size}"
            is_part = response.status == 206
            if is_part and response.headers.get("Content-Range", "").strip() != expected:
                raise self.make_changed_error(remote)
            version = _get_version(response)
            if response.status == 416 or version != remote.version:
                raise self._make_mismatch_error(remote, version)
            return response.read(end - start + 1, decode_content=False)

    def _make_mismatch_error(self, remote: RemoteFile, version: str) -> NotReadyError:
        if self._describe_file(remote.name).version == version:
            return self.make_changed_error(remote)
        clause = "comes from a server that changes the ETag of an unchanged file"
        return self.make_error(remote.name, clause, _COPY_IT)

    @contextmanager
    def _request(
        self, method: str, name: str, headers: dict[str, str]
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the response to a request; its body is not read yet."""
        try:
            response = self._pool.request(
                method,
                f"{self.address}/{quote(name)}",
                headers={"Accept-Encoding": "identity", **headers},
                preload_content=False,
                retries=_REDIRECTS,
                timeout=_TIMEOUT,
            )
            try:
                if response.status in (404, 410):
                    raise FileNotFoundError(name)
                status = f"the server returned {response.status} {response.reason or ''}".strip()
                if response.status in (401, 403):
                    raise PermissionError(status)
                if response.status not in (200, 206, 416):
                    raise OSError(status)
                yield response
            finally:
                # a connection with an unread body cannot be reused
                response.close()
                response.release_conn()
        except (urllib3.exceptions.HTTPError, ValueError) as error:  # an invalid redirect
            raise OSError(str(getattr(error, "reason", None) or error)) from None


def _get_version(response: urllib3.BaseHTTPResponse) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""


def _decode_md5(md5: str) -> str:
    """Return the base64 header Content-MD5 in hexadecimal; "" if it is invalid."""
    try:
        digest = b64decode(md5, validate=True)
    except ValueError:
        return ""
    return digest.hex() if len(digest) == 16 else ""


class Bucket(Store):
    """The objects below a URL."""

    def __init__(self, address: str):
        super().__init__(address)
        self._scheme = address.partition("://")[0]
        if self._scheme == "gs":
            self.waits = ()  # gcsfs retries
        # an error already reports failures
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        self._files = fsspec.filesystem(
            self._scheme, use_listings_cache=False, skip_instance_cache=True
        )

    def _describe_file(self, name: str) -> RemoteFile:
        with _convert_fsspec_errors():
            description = self._describe(f"{self.address}/{name}")
        version = next((str(description[key]) for key in _VERSIONS if description.get(key)), "")
        return RemoteFile(name, int(description["size"]), version, _get_md5(description))

    def _read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        with _convert_fsspec_errors():
            content = self._files.cat_file(f"{self.address}/{remote.name}", start=start, end=end)
        if end - start < len(content) == remote.size:
            raise self.make_error(remote.name, _NO_RANGES, _COPY_IT)
        return content

    def _describe(self, path: str) -> dict[str, Any]:
        if self._scheme == "s3":
            # s3fs does not report how an object is encrypted
            bucket, key, _ = self._files.split_path(path)
            description = self._files.call_s3("head_object", Bucket=bucket, Key=key)
            return description | {"size": description["ContentLength"]}
        description = self._files.info(path)
        if description["type"] != "file":
            raise FileNotFoundError(path)
        return description


def _get_md5(description: dict[str, Any]) -> str:
    if "md5Hash" in description:  # Google Cloud Storage
        return b64decode(description["md5Hash"]).hex()
    # an S3 ETag is an MD5, except for multipart uploads or customer-provided keys
    etag = str(description.get("ETag", "")).strip('"')
    is_md5 = (
        description.get("ServerSideEncryption") in (None, "AES256")
        and "SSECustomerAlgorithm" not in description
    )
    return etag if is_md5 and re.fullmatch("[0-9a-f]{32}", etag) else ""


@contextmanager
def _convert_fsspec_errors() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if "Credentials" in type(error).__name__:  # missing or expired credentials
            raise PermissionError(str(error)) from None
        raise OSError(str(error) or type(error).__name__) from None

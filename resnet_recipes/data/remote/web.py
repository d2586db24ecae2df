"""Files on a web server, read in ranges.

fsspec's own reader of https takes an answer of any length into memory, and does not look at the
range that was sent.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from resnet_recipes.data.remote.store import RemoteFile, Store

_TIMEOUT = urllib3.Timeout(connect=10, read=30)  # seconds, read: between two bytes
_REDIRECTS = urllib3.Retry(total=5, connect=0, read=0, status=0, other=0)


class Web(Store):
    """The files below an http or https address."""

    def __init__(self, address: str, connections: int):
        super().__init__(address)
        place = urlsplit(address)
        proxy = None if proxy_bypass(place.netloc) else getproxies().get(place.scheme)
        self._pool = (
            urllib3.ProxyManager(proxy, maxsize=connections)
            if proxy
            else urllib3.PoolManager(maxsize=connections)
        )

    def _look(self, name: str) -> RemoteFile:
        with self._answer("HEAD", name, {}) as answer:
            length, md5 = (answer.headers.get(key, "") for key in ("Content-Length", "Content-MD5"))
            if not re.fullmatch("[0-9]{1,18}", length):
                raise self.refused(name, "comes from a server that does not say how long it is")
            return RemoteFile(name, int(length), _version(answer), _hex(md5))

    def _read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        wanted = {"Range": f"bytes={start}-{end - 1}"}
        with self._answer("GET", remote.name, wanted) as answer:
            if answer.status == 200 and (start, end) != (0, remote.size):
                rule = "comes from a server that sends files only as a whole (no HTTP ranges)"
                raise self.refused(
                    remote.name, rule, "copy it to this machine, and give that folder"
                )
            expected = f"bytes {start}-{end - 1}/{remote.size}"
            is_part = answer.status == 206
            if is_part and answer.headers.get("Content-Range", "").strip() != expected:
                raise self.changed(remote)
            if answer.status == 416 or _version(answer) != remote.version:
                raise self.changed(remote)
            return answer.read(end - start + 1, decode_content=False)

    @contextmanager
    def _answer(
        self, method: str, name: str, headers: dict[str, str]
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the answer to a request, its body unread."""
        try:
            answer = self._pool.request(
                method,
                f"{self.address}/{quote(name)}",
                headers={"Accept-Encoding": "identity", **headers},
                preload_content=False,
                retries=_REDIRECTS,
                timeout=_TIMEOUT,
            )
            try:
                if answer.status in (404, 410):
                    raise FileNotFoundError(name)
                said = f"the server answered {answer.status} {answer.reason or ''}".strip()
                if answer.status in (401, 403):
                    raise PermissionError(said)
                if answer.status not in (200, 206, 416):
                    raise OSError(said)
                yield answer
            finally:
                # of a body that was not read to its end, the connection is of no more use
                answer.close()
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, ValueError) as error:  # an address it redirects to
            raise OSError(str(getattr(error, "reason", None) or error)) from None


def _version(answer: urllib3.BaseHTTPResponse) -> str:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""


def _hex(md5: str) -> str:
    """Return the header Content-MD5, which is in base64, in hex; "" if it is none."""
    try:
        found = b64decode(md5, validate=True)
    except ValueError:
        return ""
    return found.hex() if len(found) == 16 else ""

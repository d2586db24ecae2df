"""The interface of buckets and web servers: describe a file, and read a part of it."""

import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple, TypeVar

from resnet_recipes.base.errors import Fix, Hint, NotReadyError, Statement
from resnet_recipes.base.names import DOCS

_RESPONSE_SECONDS = 90  # seconds for a response without a body, including the retries of gcsfs
_MIN_RATE = 32 << 10  # bytes per second of a body; slower responses count as stalled

_T = TypeVar("_T")


class RemoteFile(NamedTuple):
    """A file in a bucket or on a web server."""

    name: str  # path relative to the URL
    size: int  # bytes
    version: str  # changes with the content: an ETag, a generation or a time
    md5: str = ""  # MD5 of the content, in hex, if the store provides it


class ForbiddenError(NotReadyError):
    """Access to a file is denied. Buckets also report this for missing files."""


class Store:
    """The files below a URL. Subclasses raise OSError for temporary failures."""

    waits: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)  # seconds to wait before each retry

    def __init__(self, address: str):
        """Keep `address`, a URL without a trailing slash."""
        self.address = address

    def describe(self, name: str) -> RemoteFile | None:
        """Return the description of a file; None if it does not exist.

        Raises ForbiddenError if access is denied, NotReadyError if no attempt gets a response.
        """
        try:
            return self._retry(name, lambda: self._describe_file(name), _RESPONSE_SECONDS)
        except FileNotFoundError:
            return None

    def read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        """Return a part of a file. Raises NotReadyError if it cannot be fetched or has changed."""

        def read() -> bytes:
            data = self._read(remote, start, end)
            if len(data) != end - start:
                raise OSError(f"sent {len(data):,} bytes instead of {end - start:,}")
            return data

        try:
            return self._retry(remote.name, read, _RESPONSE_SECONDS + (end - start) / _MIN_RATE)
        except FileNotFoundError:
            raise self.make_changed_error(remote) from None

    def make_changed_error(self, remote: RemoteFile) -> NotReadyError:
        """Return the error for a file that has changed."""
        return self.make_error(
            remote.name,
            "changed while it was fetched",
            Hint("run the same command again to fetch the new file"),
        )

    def make_error(self, name: str, clause: str, fix: Fix = ()) -> NotReadyError:
        """Return the error for a file that cannot be used."""
        return NotReadyError.of("data.root", f"{self.address}/{name}", clause, fix)

    def _describe_file(self, name: str) -> RemoteFile:
        raise NotImplementedError

    def _read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        raise NotImplementedError

    def _retry(self, name: str, send: Callable[[], _T], seconds: float) -> _T:
        """Repeat a request a few times, waiting the given seconds after each failure."""
        for wait in (*self.waits, None):
            try:
                return _get_response(seconds, send)
            except FileNotFoundError:
                raise
            except PermissionError as error:
                clause: str = Statement(f"access denied: {_shorten_reason(error)}")
                fix = Hint(f"{DOCS}/howto/remote_data.html lists the credentials that are used")
                raise ForbiddenError(self.make_error(name, clause, fix).problems) from None
            except OSError as error:
                if wait is None:
                    fix = Hint("run the same command again; fetched pieces are kept")
                    attempts = f" in {1 + len(self.waits)} attempts" if self.waits else ""
                    clause = f"could not be fetched{attempts}: {_shorten_reason(error)}"
                    raise self.make_error(name, clause, fix) from None
                time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")


def _get_response(seconds: float, send: Callable[[], _T]) -> _T:
    """Return the response. Raises the errors of `send`, or TimeoutError after `seconds`.

    A thread makes the request and may outlive this call. No library times out on a response that
    arrives byte by byte, or whose header never ends.
    """
    response: futures.Future[_T] = futures.Future()

    def listen() -> None:
        try:
            response.set_result(send())
        except BaseException as error:
            response.set_exception(error)

    threading.Thread(target=listen, daemon=True).start()
    if not futures.wait([response], seconds).done:
        raise TimeoutError(f"no complete response in {seconds:.0f} s")
    return response.result()


def _shorten_reason(error: OSError) -> str:
    """Return the reason in an error, which may be server text of any length."""
    return " ".join(str(error).split())[:200] or type(error).__name__

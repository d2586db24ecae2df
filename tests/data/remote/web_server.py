"""A local web server that can misbehave, for tests of remote images."""

import email.utils
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

_COUNTING = threading.Lock()


@lru_cache(8)
def _read_content(path: Path, changed: int) -> tuple[bytes, str]:
    """Return a file and its SHA-1; `changed` is its modification time."""
    content = path.read_bytes()
    return content, hashlib.sha1(content).hexdigest()


class Site(BaseHTTPRequestHandler):
    """Sends ranges of the files in a folder; class attributes define how it misbehaves."""

    protocol_version = "HTTP/1.1"
    address: str
    folder: Path
    asked: list[str]  # "GET /name bytes=0-9"
    cuts = 0  # number of responses to cut off
    stalls = 0  # number of responses to cut off after seconds of silence
    busy = 0  # number of 503 responses
    fault = ""  # fault of every GET response
    drops = b""  # bytes sent repeatedly, for some seconds, before every GET response
    status = 0  # status of every response, unless 0
    moved_to = ""  # redirect target of every response
    has_etag = True

    def log_message(self, *_: object) -> None:
        """Suppress log messages."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Send a part of a file."""
        kind = type(self)
        is_get = self.command == "GET"
        fault, drops = (kind.fault, kind.drops) if is_get else ("", b"")
        kind.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        path = kind.folder / unquote(self.path.lstrip("/"))
        status = kind.status or (200 if path.is_file() else 404)
        if is_get and self._has_turn("busy"):
            status = 503
        if status != 200:
            self._send_head(status, {"Content-Length": 0, "Location": kind.moved_to})
            return
        for _ in range(300 if drops else 0):
            self.wfile.write(drops)
            time.sleep(0.01)
        content, digest = _read_content(path, path.stat().st_ctime_ns)
        requested = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        body, headers = content, {}
        if requested and fault != "no ranges":
            start = int(requested[1])
            end = int(requested[2])
            body = content[start : end + 1]
            shift = fault == "another range"
            status = 206
            headers["Content-Range"] = f"bytes {start + shift}-{end + shift}/{len(content)}"
        if kind.has_etag:
            headers["ETag"] = f'"{digest}{"x" * (fault == "another version")}"'
        headers["Last-Modified"] = email.utils.formatdate(path.stat().st_mtime)
        if fault == "longer":
            body += b"x" * 1000
        self._send_head(status, headers | {"Content-Length": len(body)})
        if is_get:
            self._send(body)

    def _send_head(self, status: int, headers: dict[str, object]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def _has_turn(self, trouble: str) -> bool:
        """Return whether this response must fail, and count it: requests are parallel."""
        kind = type(self)
        with _COUNTING:
            left = getattr(kind, trouble)
            setattr(kind, trouble, max(left - 1, 0))
        return left > 0

    def _send(self, body: bytes) -> None:
        stalls = not (cuts := self._has_turn("cuts")) and self._has_turn("stalls")
        if cuts or stalls:
            self.wfile.write(body[: len(body) // 2])
            if stalls:
                time.sleep(3)
            self.close_connection = True
            return
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server without a backlog: the system retries a connection after a second."""

    request_queue_size = 64


@contextmanager
def serve_folder(folder: Path) -> Iterator[type[Site]]:
    """Serve a folder; yield the handler class, whose attributes define faults."""
    kind = type("OwnSite", (Site,), {"folder": folder, "asked": []})
    with Server(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        kind.address = f"http://127.0.0.1:{server.server_port}"
        yield kind
        server.shutdown()

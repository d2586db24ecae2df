"""Networks are pushed to and loaded from a local stand-in for the Hugging Face Hub."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import resnet_recipes
from resnet_recipes.base import names
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.network.hub import parse_repository, push
from resnet_recipes.network.open import AbsentError
from tests.shared.checks import get_problem

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

Api = huggingface_hub.HfApi
COMMIT = "c" * 40

#: A run that starts from a repository's network.
ARGUMENTS = (
    "mild data.backend=synthetic bs=16 lr=0.1 batch.bn_size=8 model.name=resnet18 "
    "model.weights=hf:me/net"
)


class Hub(BaseHTTPRequestHandler):
    """Implements the part of the Hub protocol that uploads and downloads one file."""

    files: dict[str, bytes]
    token = "right"
    cut = 0  # bytes after which downloads are cut off; 0: never
    sent: dict[str, str]  # response headers that replace the correct headers of a file
    asked: list[str]  # HTTP methods of the requests for a file
    lies: tuple[str, object] = ("nothing", None)  # part of a path, and the wrong response to it

    def log_message(self, *_: object) -> None:
        """Suppress log messages."""

    def do_POST(self) -> None:
        """Create a repository, describe how to upload, or accept a commit."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        part, lie = self.lies
        if part in self.path:
            self._send_answer(200, lie)
        elif self.headers.get("Authorization") != f"Bearer {self.token}":
            self._send_answer(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self._send_answer(200, {"url": f"http://{self.headers['Host']}/me/net"})
        elif "/preupload/" in self.path:
            modes = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._send_answer(200, {"files": modes})
        elif "/commit/" not in self.path:
            self._send_answer(200, {"errors": [], "warnings": []})  # the model card is valid
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[line["value"]["path"]] = content
            commit_url = f"http://{self.headers['Host']}/me/net/commit/{COMMIT}"
            message = {"commitUrl": commit_url, "commitOid": COMMIT}
            self._send_answer(200, message | {"pullRequestUrl": None, "success": True})

    def do_HEAD(self) -> None:
        self.do_GET(has_body=False)

    def do_GET(self, has_body: bool = True) -> None:
        """Send a file, or metadata of the repository."""
        name = self.path.partition("/resolve/")[2].rpartition("/")[2]
        if not name:
            self._send_answer(200, {"id": "me/net", "sha": COMMIT, "siblings": [], "files": []})
        elif name not in self.files:
            self._send_answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
        else:
            content = self.files[name]
            self.send_response(200)
            facts = {"ETag": '"e"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(content))}
            facts |= self.sent
            self.asked.append(self.command)
            for key, value in facts.items():
                self.send_header(key, value)
            self.end_headers()
            if has_body:
                self.wfile.write(content[: self.cut or None])

    def _send_answer(
        self, code: int, message: object, headers: dict[str, str] | None = None
    ) -> None:
        body = json.dumps(message).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """The stand-in Hub without files, and an empty cache."""
    handler = type("Hub", (Hub,), {"files": {}, "sent": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub, "HfApi", partial(Api, endpoint=address))
    hosts = getattr(constants, "HF_URL_HOSTS", frozenset()) | {"127.0.0.1"}
    monkeypatch.setattr(constants, "HF_URL_HOSTS", hosts, raising=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # no delay between attempts
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HF_TOKEN", "right")
    yield handler
    server.shutdown()
    server.server_close()


EXPORT = "resnet-recipes export {0} --to safetensors --out {0}/../out --push"


def test_pushed_network_loads_and_serves_as_weights(folder_with_weights, hub, run_command):
    assert "/me/net" in run_command(f"{EXPORT.format(folder_with_weights)} hf:me/net").out
    card = huggingface_hub.ModelCard(hub.files["README.md"].decode())
    assert card.data.license == "other"
    assert (folder_with_weights.parent / "out" / "model.safetensors").read_bytes() == hub.files[
        "model.safetensors"
    ]
    assert resnet_recipes.load("hf:me/net").about == resnet_recipes.load(folder_with_weights).about
    assert "hub/me--net/model.safetensors" in run_command(f"resnet-recipes plan {ARGUMENTS}").out
    arguments = ["model.name=resnet18", "model.weights=hf:me/net"]
    assert resnet_recipes.compose("finetune", *arguments).methods.blurpool is not None
    assert (
        resnet_recipes.compose("finetune", *arguments, "~methods.blurpool").methods.blurpool is None
    )


def list_relative_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "sent",
    [
        {"ETag": '"../../../../planted.pth"'},
        {"ETag": '"{outside}/planted.pth"'},
        {"X-Linked-Etag": '"../../../planted.pth"', "X-Linked-Size": "1"},
        {"X-Repo-Commit": "../../../planted"},
        {"X-Repo-Commit": "{outside}/planted"},
        {"X-Xet-Hash": "../planted", "X-Xet-Refresh-Route": "/../planted"},
    ],
)
def test_mirror_headers_never_become_paths(sent, folder_with_weights, hub, tmp_path, monkeypatch):
    home = tmp_path / "one/two/three/four/home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    hub.files["model.safetensors"] = (folder_with_weights / "weights.safetensors").read_bytes()
    hub.sent = {key: value.format(outside=tmp_path) for key, value in sent.items()}
    before = list_relative_files(tmp_path)
    with suppress(NotReadyError):
        resnet_recipes.load("hf:me/net")
    outside = {
        name
        for name in list_relative_files(tmp_path) - before
        if "home/resnet-recipes/" not in name
    }
    assert not outside


def test_fetch_downloads_only_changed_files(folder_with_weights, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    hub.files["model.safetensors"] = (folder_with_weights / "weights.safetensors").read_bytes()
    for _ in range(2):
        resnet_recipes.load("hf:me/net")
    assert hub.asked.count("GET") == 1
    hub.sent = {"ETag": '"newer"'}
    resnet_recipes.load("hf:me/net")
    assert hub.asked.count("GET") == 2


def test_plan_suggests_hub_download_instead_of_fetching(hub, run_command):
    hub.files["model.safetensors"] = b"anything"
    message = run_command(f"resnet-recipes plan {ARGUMENTS}").out
    assert "hf download me/net model.safetensors" in " ".join(message.split())
    with pytest.raises(AbsentError, match=r"hf download me/net model\.safetensors"):
        resnet_recipes.plan(resnet_recipes.compose(*ARGUMENTS.split()))


def test_failed_push_suggests_how_to_repeat_it(hub, tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("# A network")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    message = (
        "cannot be accessed: you are not logged in, the token is invalid, or there is no such "
        "repository"
    )
    with pytest.raises(NotReadyError, match=rf"{message}\n    try:   hf auth login"):
        push(tmp_path, "hf:me/net")
    monkeypatch.setattr(huggingface_hub, "HfApi", partial(Api, endpoint="http://127.0.0.1:9"))
    with pytest.raises(NotReadyError, match=f"hf upload me/net {tmp_path}"):
        push(tmp_path, "hf:me/net")


@pytest.mark.parametrize(
    ("part", "lie"),
    [
        ("/create", [1]),
        ("/create", {"url": 7}),
        ("/preupload/", [None]),
        ("/preupload/", {"files": {"a": 1}}),
        ("/commit/", "text"),
    ],
)
def test_push_rejects_invalid_responses(hub, tmp_path, part, lie):
    (tmp_path / "README.md").write_text("# A network")
    hub.lies = part, lie
    problem = get_problem(NotReadyError, push, tmp_path, "hf:me/net")
    assert problem.key == "hf:me/net"
    assert problem.clause.startswith("cannot be accessed: ")
    assert str(tmp_path) in problem.corrections[0]


def test_push_rejects_wrong_name_before_writing(folder_with_weights, hub, run_command):
    assert "--push hf:me/net" in run_command(f"{EXPORT.format(folder_with_weights)} me/net", 2).err
    assert not (folder_with_weights.parent / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        "hf:../..",
        "hf:me/..",
        "hf:me/net/../x",
        "hf:me/net\n",
        "hf:me/my--net",
        "hf:me/my..net",
        "hf:me/net.",
        "hf:me/net-",
        "hf:me-/net",
        "hf:me/net.git",
        f"hf:me/{'n' * 97}",
    ],
)
def test_hub_name_never_escapes_its_folder(name):
    with pytest.raises(RecipeError, match="must name a repository"):
        resnet_recipes.load(name)
    assert not names.PUBLISHED_WEIGHTS.fullmatch(name)


@pytest.mark.parametrize("name", ["me/net", "m/n", "me/my-net_2.0", f"me/{'n' * 96}", "me/n__"])
def test_valid_hub_name_is_accepted(name):
    huggingface_hub.utils.validate_repo_id(name)
    assert parse_repository("load", f"hf:{name}") == name
    assert names.PUBLISHED_WEIGHTS.fullmatch(f"hf:{name}")


def test_interrupted_or_impossible_download_leaves_no_file(folder_with_weights, hub, monkeypatch):
    with pytest.raises(NotReadyError, match="does not exist"):
        resnet_recipes.load("hf:me/net")
    hub.files["model.safetensors"] = bytes(1000)
    hub.cut = 10
    with pytest.raises(NotReadyError, match="hf download me/net"):
        resnet_recipes.load("hf:me/net")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotReadyError, match="hf:me/net"):
        resnet_recipes.load("hf:me/net")

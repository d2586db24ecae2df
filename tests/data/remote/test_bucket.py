"""A dataset in S3, simulated by moto."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.remote import base
from resnet_recipes.data.remote.stores import Bucket
from tests.shared.checks import get_problem

moto = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")
botocore = pytest.importorskip("botocore.exceptions")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A local server; stopping it takes half a second."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address: str, betons: Path, monkeypatch: pytest.MonkeyPatch) -> "s3fs.S3FileSystem":
    """A bucket `images` with .beton files; returns a file system to write to it."""
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(base.Store, "waits", ())
    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    files.makedirs("images", exist_ok=True)  # the server keeps files of earlier tests
    for path in betons.iterdir():
        files.put_file(str(path), f"images/set/{path.name}")
    return files


def test_bucket_copy_is_compared_with_md5(bucket, betons, tmp_path):
    config = DataConfig(root="s3://images/set", cache=str(tmp_path))
    facts = data.survey_images(config)
    assert facts.digest == data.survey_images(DataConfig(root=str(betons))).digest
    assert "the MD5 from the store (4 files)" in facts.notes[0].text
    copied_images = Path(data.fetch(config).root)
    assert (copied_images / "train.beton").read_bytes() == (betons / "train.beton").read_bytes()


def test_missing_or_forbidden_bucket_is_rejected_with_reason(bucket, tmp_path, monkeypatch):
    with pytest.raises(NotReadyError, match=r"has neither train\.beton and val\.beton nor a table"):
        data.fetch(DataConfig(root="s3://nobody/set", cache=str(tmp_path)))

    # the errors of s3fs for a 403 and for missing credentials
    errors = [PermissionError("Access Denied"), botocore.NoCredentialsError()]

    def fail(*_: object, **__: object) -> None:
        raise errors[0]

    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", fail)
    while errors:
        with pytest.raises(NotReadyError, match=f"access denied: {errors[0]}"):
            data.fetch(DataConfig(root="s3://images/set", cache=str(tmp_path)))
        del errors[0]


def test_store_without_ranges_is_rejected(bucket, tmp_path, monkeypatch):
    async def read_whole(files, path, start=None, end=None, **options):
        return await read(files, path, **options)

    read = s3fs.S3FileSystem._cat_file
    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", read_whole)
    monkeypatch.setattr("resnet_recipes.data.remote.local_copy.PIECE_BYTES", 1000)
    problem = get_problem(
        NotReadyError, data.fetch, DataConfig(root="s3://images/set", cache=str(tmp_path))
    )
    assert problem.clause == "comes from a server without HTTP range requests"
    assert problem.advice == ("copy it to this machine, and pass that folder",)


def test_object_replaced_during_fetch_is_rejected(bucket, tmp_path, monkeypatch):
    """Its ETag is not an MD5, and ranges are read from any version."""
    size = 11 << 20
    parts = {"chunksize": 5 << 20}
    for split in ("train", "val"):
        bucket.pipe_file(f"images/set/{split}.csv", b"file,label\nlarge.png,a\n")
    bucket.pipe_file("images/set/large.png", bytes(size), **parts)
    md5 = [len(Bucket("s3://images/set").describe(name).md5) for name in ("large.png", "train.csv")]
    assert md5 == [0, 32]
    read = Bucket._read

    def replace_and_read(store, remote, start, end):
        if remote.name == "large.png" and start:
            bucket.pipe_file("images/set/large.png", b"1" * size, **parts)
        return read(store, remote, start, end)

    monkeypatch.setattr(Bucket, "_read", replace_and_read)
    config = DataConfig(root="s3://images/set", backend="torchvision", cache=str(tmp_path))
    with pytest.raises(NotReadyError, match="changed while it was fetched"):
        data.fetch(config)

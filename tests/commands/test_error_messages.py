"""Complete messages of wrong commands, which the golden file lists.

`python -m tests.commands.test_error_messages` writes the messages of its commands. To add a
command, add its line to the file: `$ resnet-train mild`.
"""

import re
import tempfile
from pathlib import Path

import pytest

from tests.commands.golden import run_line, work_in
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_run_folder

GOLDEN = Path(__file__).parents[1] / "golden/error_messages.txt"


def read_golden() -> dict[str, str]:
    """Return the messages by command."""
    parts = re.split(r"(?m)^\$ (.*)\n", GOLDEN.read_text())
    return dict(zip(parts[1::2], (part.rstrip() + "\n" for part in parts[2::2]), strict=True))


def create_files(folder: Path) -> Path:
    """Create images, a run, and folders without training images, for the commands."""
    create_random_images(folder / "images")
    create_random_images(folder / "one").joinpath("val").rename(folder / "val")
    (folder / "empty").mkdir()
    (folder / "junk.pth").write_text("no weights")
    for split in ("train", "val"):
        link = folder / "lonely" / split / "cats"
        link.parent.mkdir(parents=True)
        link.symlink_to(folder / "images/train/pattern0")
    create_run_folder(folder / "runs", "first")
    return folder


def show_message(line: str, folder: Path) -> str:
    with work_in(folder):
        code, _, err = run_line(line)
    return (err if code else "").replace(str(folder), "FOLDER") or f"[exit {code}]\n"


@pytest.fixture(scope="module")
def work_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_files(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize(("line", "message"), read_golden().items())
def test_error_message_equals_golden_message(line, message, work_folder):
    assert show_message(line, work_folder) == message


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        root = create_files(Path(temporary).resolve())
        messages = [f"$ {line}\n{show_message(line, root)}" for line in read_golden()]
        GOLDEN.write_text("\n".join(messages))

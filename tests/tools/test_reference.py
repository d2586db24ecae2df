"""The committed pages of docs/reference match the code."""

from tools.reference import FOLDER, pages


def test_reference_pages_match_the_code():
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == pages(), "python tools/reference.py writes them"

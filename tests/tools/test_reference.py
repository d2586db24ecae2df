"""The committed pages of docs/reference match the code."""

from tools.reference import FOLDER, make_pages


def test_reference_pages_match_the_code():
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == make_pages(), "python tools/reference.py writes them"


def test_recipe_is_listed_with_methods_of_its_parent():
    rows = make_pages()["methods.md"].splitlines()
    users = {row.split("](#")[0]: row for row in rows if row.startswith("| [")}
    assert "recipes.md#gentle" in users["| [ema"]
    assert "recipes.md#gentle" not in users["| [mixup"]

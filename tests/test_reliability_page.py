"""The page on reliability names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"`(?:tests/[a-z/]*)?(test_\w+(?:\.py|\*)?)`", page))
    assert len(named) > 25
    functions = "\n".join(sources.values())
    files = {path.name for path in sources}
    missing = [
        name for name in named if name not in files and f"def {name.rstrip('*')}" not in functions
    ]
    assert missing == []

"""The page on reliability names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"`(?:tests/[a-z/]*)?(test_\w+(?:\.py|\*)?)`", page))
    assert len(named) > 25
    functions = "\n".join(sources.values())
    missing = [name for name in named if name not in sources and f"def {name.rstrip('*')}" not in functions]
    assert missing == []

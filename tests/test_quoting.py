"""Whatever a message or a page tells a person to type survives bash, zsh and fish as it is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_documented_commands import PAGES, fenced

ROOT = Path(__file__).parents[1]

#: A word that a shell would change: ~ expands, and [ is a pattern.
BARE = re.compile(r"(?<![\w.'`/{])(?:~(?:methods|optimizer)\.|[a-z][\w.]*=\[(?=[\w\]])(?!\w-))")

#: These quote what they hold when they print it, or hold no shell words.
OTHERS = {"foreign_words.py", "completion.py"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts in a source file that are not docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.lineno, str(node.value)


def test_messages_quote_what_shells_would_change():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "resnet_recipes").rglob("*.py"))
        if path.name not in OTHERS
        for line, text in texts(path)
        if BARE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_pages_quote_what_shells_would_change(page):
    found = [
        line
        for _, block in fenced(page, "", "sh", "bash", "console")
        for line in block.splitlines()
        if BARE.search(line.partition(" # ")[0]) and "resnet-" in line
    ]
    assert found == []

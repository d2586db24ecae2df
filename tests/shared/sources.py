"""The source of the package as syntax trees, for tests of imports, layers, pages and style."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def parse_sources() -> dict[Path, ast.Module]:
    """Return every source file of the package with its syntax tree."""
    return {path: parse(path) for path in sorted((ROOT / "resnet_recipes").rglob("*.py"))}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a source file, in the order of ast.walk."""
    return list(ast.walk(parse(path)))


def assert_none(wrong: Iterable[str]) -> None:
    """Assert that there are no violations; list each on its own line."""
    assert not (lines := [*wrong]), "\n".join(["", *lines])

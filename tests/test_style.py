"""The rules of form that ruff has no rule for: sizes, nesting, names, documented members."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import ROOT, nodes, sources

SOURCE_LINES, TEST_LINES, FUNCTION_LINES, NESTING = 300, 400, 60, 4
LONGER_FUNCTIONS = {"train": 70}  # the one place where the order of a step is written
VAGUE = {"utils", "util", "helpers", "helper", "misc", "common", "tools", "stuff"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def all_files() -> list[Path]:
    """Return every Python file that people write here."""
    return [
        *sources(),
        *(
            path
            for folder in ("tests", "benchmarks", "tools", "recipes", "hydra_plugins")
            for path in sorted((ROOT / folder).rglob("*.py"))
        ),
    ]


def where(path: Path, node: ast.AST) -> str:
    """Return a place that an editor can jump to."""
    return f"{path.relative_to(ROOT)}:{node.lineno} {getattr(node, 'name', '')}".rstrip()


def public(path: Path) -> Iterator[tuple[ast.ClassDef | None, Definition]]:
    """Yield the public classes, functions and methods of a file, methods with their class."""
    for node in sources()[path].body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield None, node
            if isinstance(node, ast.ClassDef):
                yield from (
                    (node, item)
                    for item in node.body
                    if isinstance(item, Function) and not item.name.startswith("_")
                )


@cache
def classes() -> dict[str, list[tuple[set[str], list[str]]]]:
    """The members and the base names of every class in the package.

    Several where a name is used twice.
    """
    found = defaultdict(list)
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                members = {item.name for item in node.body if isinstance(item, Function)}
                members |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
                found[node.name].append((members, base_names(node)))
    return found


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the names of a class's bases, without what they are parametrised with."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def declared_above(name: str, bases: list[str]) -> bool:
    """Return whether a base class in this package declares a member, and so documents it."""
    return any(
        name in members or declared_above(name, above)
        for base in bases
        for members, above in classes().get(base, [])
    )


@cache
def declared_by_protocols() -> frozenset[str]:
    """The members of every protocol; classes that fit one need not name it."""
    return frozenset(
        name
        for versions in classes().values()
        for members, bases in versions
        if "Protocol" in bases
        for name in members
    )


def documented_elsewhere(name: str, owner: ast.ClassDef | None) -> bool:
    """Return whether a method is documented where it is declared.

    A base class, a protocol, or nn.Module.
    """
    return owner is not None and (
        name == "forward"
        or name in declared_by_protocols()
        or declared_above(name, base_names(owner))
    )


def depth(statements: list[ast.stmt]) -> int:
    """Return how deeply control flow is nested.

    A nested function or class starts again, elif does not go deeper.
    """
    deepest = 0
    for statement in statements:
        if isinstance(statement, BLOCKS):
            deepest = max(deepest, 1 + inner_depth(statement))
    return deepest


def inner_depth(statement: ast.stmt) -> int:
    """Return the nesting inside one block."""
    bodies = [getattr(statement, "body", []), getattr(statement, "finalbody", [])]
    bodies += [handler.body for handler in getattr(statement, "handlers", [])] + [
        case.body for case in getattr(statement, "cases", [])
    ]
    otherwise = getattr(statement, "orelse", [])
    is_elif = (
        isinstance(statement, ast.If) and len(otherwise) == 1 and isinstance(otherwise[0], ast.If)
    )
    if not is_elif:
        return max(depth(body) for body in [*bodies, [] if is_elif else otherwise])
    return max(*(depth(body) for body in bodies), inner_depth(otherwise[0]))


def functions(path: Path) -> Iterator[Function]:
    """Yield all functions of a file, nested ones too."""
    return (node for node in nodes(path) if isinstance(node, Function))


def test_every_file_fits_in_the_head():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in all_files()}
    limit = {path: SOURCE_LINES if path in sources() else TEST_LINES for path in lengths}
    wrong = [
        f"{path.relative_to(ROOT)} has {lines} lines"
        for path, lines in lengths.items()
        if lines > limit[path]
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_every_function_fits_on_a_screen():
    wrong = []
    for path in sources():
        for node in functions(path):
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGER_FUNCTIONS.get(node.name, FUNCTION_LINES):
                wrong.append(f"{where(path, node)} has {lines} lines")
    assert not wrong, "\n".join(["", *wrong])


def test_control_flow_is_not_nested_deeply():
    wrong = [
        where(path, node)
        for path in sources()
        for node in functions(path)
        if depth(node.body) > NESTING
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_file_names_say_what_is_inside():
    wrong = [
        str(path.relative_to(ROOT))
        for path in all_files()
        if path.stem.removeprefix("test_") in VAGUE
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_files_are_ascii():
    wrong = [str(path.relative_to(ROOT)) for path in all_files() if not path.read_bytes().isascii()]
    assert not wrong, "\n".join(["", *wrong])


def test_every_public_name_has_a_docstring():
    wrong = [
        str(path.relative_to(ROOT))
        for path, tree in sources().items()
        if not ast.get_docstring(tree)
    ]
    for path in sources():
        for owner, node in public(path):
            if not ast.get_docstring(node) and not documented_elsewhere(node.name, owner):
                wrong.append(where(path, node))
    assert not wrong, "\n".join(["", *wrong])

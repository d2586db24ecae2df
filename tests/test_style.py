"""Rules of form that ruff cannot check: sizes, nesting, names, documented members."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.shared.sources import ROOT, assert_none, list_nodes, parse_sources

FILE_LINES, FUNCTION_LINES, NESTING = 500, 60, 4
#: The only function that contains the order of a step.
LONGER_FUNCTIONS = {("resnet_recipes/training/loop.py", "train"): 70}
VAGUE = {"utils", "util", "helpers", "helper", "misc", "common", "tools", "stuff"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)

#: In a docstring, after its first sentence: a verb without s, and an error without a condition.
IMPERATIVE = re.compile(r"(?<=[.;] )(?:Also )?(?:Call|Keep|Raise|Return|Skip|Take|Yield)\b")
BARE_ERROR = re.compile(r"\bRaises \w+(?:,? (?:and|or) \w+)*\.")


def iterate_docstrings() -> Iterator[tuple[Path, ast.AST, str]]:
    return (
        (path, node, " ".join(text.split()))
        for path in list_files()
        for node in list_nodes(path)
        if isinstance(node, (*Function.__args__, ast.ClassDef))
        and (text := ast.get_docstring(node))
    )


def list_files() -> list[Path]:
    """Return every hand-written Python file."""
    return [
        *parse_sources(),
        *(
            path
            for folder in ("tests", "benchmarks", "tools", "recipes", "hydra_plugins")
            for path in sorted((ROOT / folder).rglob("*.py"))
        ),
    ]


def format_location(path: Path, node: ast.AST) -> str:
    """Return a location that editors can open."""
    return f"{path.relative_to(ROOT)}:{node.lineno} {getattr(node, 'name', '')}".rstrip()


def measure_nesting(node: ast.AST, level: int = 0) -> int:
    """Return how deeply control flow is nested inside a function's node; elif is not deeper."""
    inner = level + isinstance(node, BLOCKS)
    return max(
        [
            inner,
            *(
                measure_nesting(child, level if is_elif(node, child) else inner)
                for child in ast.iter_child_nodes(node)
                if not isinstance(child, Function | ast.ClassDef)
            ),
        ]
    )


def is_elif(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]


def iterate_functions(path: Path) -> Iterator[Function]:
    """Yield all functions of a file, including nested functions."""
    return (node for node in list_nodes(path) if isinstance(node, Function))


def test_files_have_at_most_500_lines():
    for path in list_files():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= FILE_LINES, path


def test_functions_have_at_most_60_lines():
    assert_none(
        f"{format_location(path, node)} has {lines} lines"
        for path in parse_sources()
        for node in iterate_functions(path)
        if (lines := node.end_lineno - node.lineno + 1)
        > LONGER_FUNCTIONS.get((str(path.relative_to(ROOT)), node.name), FUNCTION_LINES)
    )


def test_control_flow_is_not_nested_deeply():
    assert_none(
        format_location(path, node)
        for path in parse_sources()
        for node in iterate_functions(path)
        if measure_nesting(node) > NESTING
    )


def test_file_names_are_descriptive():
    assert_none(str(path) for path in list_files() if path.stem.removeprefix("test_") in VAGUE)


def test_files_are_ascii():
    assert_none(str(path) for path in list_files() if not path.read_bytes().isascii())


def test_docstrings_continue_in_the_third_person():
    assert_none(
        f"{format_location(path, node)}: {match[0]}"
        for path, node, text in iterate_docstrings()
        if (match := IMPERATIVE.search(text))
    )


def test_docstrings_state_when_an_error_is_raised():
    assert_none(
        f"{format_location(path, node)}: {match[0]}"
        for path, node, text in iterate_docstrings()
        if (match := BARE_ERROR.search(text))
    )


def test_public_methods_have_a_docstring():
    """A method without one has the name of a documented member, or a field, of any class."""
    members = [
        (path, item)
        for path in parse_sources()
        for node in list_nodes(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for item in node.body
    ]
    declared = {"forward"} | {
        getattr(item, "name", "") or getattr(getattr(item, "target", None), "id", "")
        for _, item in members
        if isinstance(item, ast.AnnAssign)
        or (isinstance(item, Function) and ast.get_docstring(item))
    }
    assert_none(
        format_location(path, item)
        for path, item in members
        if isinstance(item, Function)
        and not item.name.startswith("_")
        and item.name not in declared
    )


def test_type_name_exists_once():
    """Otherwise only the module name would tell two types apart."""
    places = {}
    for path, tree in parse_sources().items():
        for node in tree.body:
            if name := get_type_name(node):
                places.setdefault(name, []).append(format_location(path, node))
    assert places["ZeroToOne"], "aliases are types too"
    assert_none(" and ".join(locations) for locations in places.values() if len(locations) > 1)


def test_names_of_tests_have_at_most_eight_words():
    assert_none(
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name.count("_") > 8
    )


#: First words that are not verbs: -ing, -ed and irregular participles, and nouns in -tion.
NOT_A_VERB = re.compile(
    r"_*(?:[a-z]+(?:ing|[^e]ed|tion)|chosen|found|given|kept|known|made|shown|taught|told)(?:_|$)"
)
#: Implementations, whose names CONTRIBUTING.md excepts.
IMPLEMENTATIONS = {"fused", "unfused"}


def iterate_named_functions() -> Iterator[tuple[Path, Function]]:
    """Yield all functions of benchmarks and tools, and the functions of modules of the package.

    A method may only derive a value, and then its name is a noun.
    """
    for path, tree in parse_sources().items():
        yield from ((path, node) for node in tree.body if isinstance(node, Function))
    for folder in ("benchmarks", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((path, node) for node in iterate_functions(path))


def test_function_names_are_not_participles_or_nouns():
    assert_none(
        format_location(path, node)
        for path, node in iterate_named_functions()
        if not is_property(node) and node.name not in IMPLEMENTATIONS
        if NOT_A_VERB.match(node.name)
    )


def test_iterate_returns_iterators_and_list_never_does():
    wrong = {"iterate": False, "list": True}
    assert_none(
        format_location(path, node)
        for path in list_files()
        for node in iterate_functions(path)
        if returns_iterator(node) == wrong.get(node.name.strip("_").split("_")[0])
    )


def test_find_functions_for_problems_end_in_problems():
    assert_none(
        format_location(path, node)
        for path in parse_sources()
        for node in iterate_functions(path)
        if node.name.strip("_").startswith("find_") and node.returns
        if ("Problem" in ast.unparse(node.returns)) != bool(re.search("_?problems?$", node.name))
    )


def returns_iterator(node: Function) -> bool:
    return bool(node.returns) and ast.unparse(node.returns).strip("'").startswith("Iterator")


def is_property(node: Function) -> bool:
    """Return whether a method is a property, whose name is a noun."""
    return any(getattr(item, "id", "") == "property" for item in node.decorator_list)


def get_type_name(node: ast.stmt) -> str | None:
    """Return the name of the class or type alias that a statement defines."""
    if isinstance(node, ast.ClassDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return next(
        (name for name in names if re.fullmatch(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*", name)), None
    )


#: Functions whose callers do not read the items: methods of networks, and the checks of commands,
#: whose results are the arguments of run().
PASSED_ON = {"forward", "backward", "check"}


def iterate_members(tree: ast.Module) -> Iterator[Function]:
    """Yield the functions and methods of a module, without those inside functions."""
    for node in tree.body:
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(item, Function):
                yield item


def is_unnamed_tuple(annotation: ast.expr | None) -> bool:
    """Return whether an annotation contains tuple[A, B], possibly within another type."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    subscripts = [node for node in ast.walk(annotation or ast.Module([], [])) if is_tuple(node)]
    return any(not is_ellipsis(node.slice) for node in subscripts)


def is_tuple(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "tuple"


def is_ellipsis(items: ast.expr) -> bool:
    """Return whether a tuple type has any number of items of one type."""
    return isinstance(items, ast.Tuple) and getattr(items.elts[-1], "value", "") is ...


def test_no_unnamed_tuple_leaves_its_module():
    """Callers would have to look up its items; a NamedTuple documents them."""
    readers = {}
    for path in parse_sources():
        for node in list_nodes(path):
            if name := getattr(node, "attr", getattr(node, "id", "")):
                readers.setdefault(name, set()).add(path)
    assert_none(
        format_location(path, node)
        for path, tree in parse_sources().items()
        for node in iterate_members(tree)
        if not node.name.startswith("_") and node.name not in PASSED_ON
        if is_unnamed_tuple(node.returns) and readers.get(node.name, set()) - {path}
    )

"""Rules for modules that import-linter (.importlinter) and ruff cannot check."""

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.shared.sources import ROOT, assert_none, list_nodes, parse_sources
from tests.shared.tables import parse_values

PACKAGE = "resnet_recipes"


@cache
def find_modules() -> dict[str, Path]:
    """Return the file of every module of the package by its dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in parse_sources()
    }


def get_part(module: str) -> str:
    """Return the first name below the package: "methods" of resnet_recipes.methods.sam."""
    return module.split(".")[1] if "." in module else ""


def test_only_methods_package_names_methods():
    """Other packages ask methods for their properties; only help pages may name examples."""
    names = {
        ast.literal_eval(node.value)
        for module, path in find_modules().items()
        if get_part(module) == "methods"
        for cls in list_nodes(path)
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if re.match("name(: str)? = ", ast.unparse(node))
    }
    packages = ("planning", "training", "jobs", "api", "commands")
    assert names > {"colout", "sam", "ema", "progressive_resizing"}
    assert_none(
        f"{module}:{node.lineno} {word}"
        for module, path in find_modules().items()
        if get_part(module) in packages
        for node, words in iterate_words(parse_sources()[path])
        for word in names.intersection(words)
    )


#: Functions and methods whose result for a text may decide something.
_DECIDES = {
    *("startswith", "endswith", "find", "rfind", "index", "count", "get"),
    *("match", "search", "fullmatch", "findall", "finditer"),
}


def iterate_readings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the places where a program decides by the text of an error or a problem."""
    errors = {"problem", "error", *iterate_error_names(tree)}
    for scope in ast.walk(tree):
        if isinstance(scope, ast.Module | ast.FunctionDef):
            inside = [*iterate_own_nodes(scope)]
            texts = {
                target.id
                for node in inside
                if isinstance(node, ast.Assign | ast.NamedExpr) and is_message(node.value, errors)
                for target in getattr(node, "targets", [getattr(node, "target", None)])
                if isinstance(target, ast.Name)
            }
            for node in inside:
                if any(
                    text and is_message(text, errors, texts)
                    for text in list_decisive_expressions(node)
                ):
                    yield node


def iterate_own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function, without those of the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from iterate_own_nodes(node)


def iterate_error_names(tree: ast.Module) -> Iterator[str]:
    """Yield the variables that hold an error or its problem."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, ast.For | ast.comprehension):
            name = getattr(node.target, "id", "")
            if name and getattr(node.iter, "attr", getattr(node.iter, "id", "")) == "problems":
                yield name


def list_decisive_expressions(node: ast.AST) -> list[ast.AST | None]:
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in _DECIDES:
            return [value, *node.args]
        case ast.Dict():
            return [*node.keys]
        case ast.DictComp():
            return [node.key]
        case ast.Match(subject=subject):
            return [subject]
        case ast.Subscript(slice=key):
            return [key]
    return []


def is_message(node: ast.AST, errors: set[str], texts: Collection[str] = ()) -> bool:
    """Return whether an expression is the text of an error or a problem, or contains it.

    `texts` are the variables that hold such texts.
    """
    match node:
        case ast.Name(id=name):
            return name in texts
        case ast.NamedExpr(value=value):
            return is_message(value, errors, texts)
        case ast.Attribute(attr="clause" | "message"):
            return True
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.JoinedStr(values=values):
            parts = [part.value for part in values if isinstance(part, ast.FormattedValue)]
            return any(getattr(part, "id", "") in errors for part in parts)
        case ast.Call(func=ast.Attribute(attr="lines" | "about")):
            return True
        case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value):
            return is_message(value, errors, texts)
        case ast.Attribute(value=ast.Name(id=name), attr="args"):
            return name in errors
    return False


def test_no_module_branches_on_problem_text():
    assert_none(
        f"{module}:{node.lineno} {ast.unparse(node)[:60]}"
        for module, path in find_modules().items()
        for node in iterate_readings(parse_sources()[path])
    )


@pytest.mark.parametrize(
    "text",
    [
        'if "price" in str(error): pass',
        'problem.clause.startswith("must be")',
        "re.search(rule, str(problem).lower())",
        'error.args[0] == "is missing"',
        "{str(problem): problem for problem in problems}",
        '"unknown" in problem.lines()[0]',
        "try: pass\nexcept ValueError as wrong: _RULE.fullmatch(str(wrong))",
        'text = str(error).lower()\nif "price" in text: pass',
        'if "price" in (text := problem.clause): pass',
        "def decide(problem):\n    text = problem.clause\n    return text == ''",
        'match problem.clause:\n    case "must be positive": pass',
        '"price" in f"{error}"',
        "_FIXES.get(problem.clause)",
        "_FIXES[problem.clause]",
        'any("price" in str(each) for each in error.problems)',
    ],
)
def test_search_finds_branches_on_problem_text(text):
    assert [*iterate_readings(ast.parse(text))]


def iterate_parsed_fixes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the calls and comparisons that decide by the text of a fix or of advice.

    It is in a variable of that name, or in the variable of a loop over fixes or advice.
    """
    scopes = [(tree, {"advice", "fix", "corrections", "fixes"})]
    for loop in ast.walk(tree):
        sources = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
        names = {
            getattr(source.target, "id", "")
            for source in sources
            if getattr(source.iter, "attr", "") in ("corrections", "advice")
        }
        scopes += [(loop, names)] if names else []
    for scope, names in scopes:
        for node in ast.walk(scope):
            match node:
                case ast.Call(func=ast.Attribute(attr=attr, value=text), args=arguments):
                    is_reading = attr in {*_DECIDES, "removeprefix"} - {"get"}  # of a table
                    read = [text, *arguments] if is_reading else []
                case ast.Compare(left=ast.Constant(), ops=[ast.In() | ast.NotIn()]):
                    read = node.comparators
                case _:
                    read = []
            if any(getattr(each, "id", "") in names for each in read):
                yield node


@pytest.mark.parametrize(
    "text",
    [
        "[x for x in one.corrections if x.startswith('a=')]",
        "if fix.startswith('a='): pass",
        "_COMMAND.match(advice)",
        "re.search(' ', fix)",
        "if '=' not in fix: pass",
    ],
)
def test_search_finds_parsed_fixes(text):
    assert [*iterate_parsed_fixes(ast.parse(text))]


def test_no_module_parses_fixes():
    """The type of a fix decides: Command, Change, Value, Hint, or arguments."""
    assert_none(
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, path in find_modules().items()
        for node in iterate_parsed_fixes(parse_sources()[path])
        # it adds settings to arguments that select a network
        if module != f"{PACKAGE}.jobs.initial_weights"
    )


def test_only_planner_constructs_plans():
    """Other packages only change the recipe or facts of a copy; nothing is derived from these."""
    makers = {
        module
        for module, path in find_modules().items()
        for node in list_nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Plan"
    }
    assert makers == {f"{PACKAGE}.planning.planner"}
    assert_none(
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, path in find_modules().items()
        if get_part(module) != "planning"
        for node in list_nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("replace(plan,")
        if not {keyword.arg for keyword in node.keywords} <= {"recipe", "facts"}
    )


#: Names of environment variables that torchrun, Slurm, torch, trackers and the system define.
_VARIABLES_OF_OTHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("OMP_NUM_THREADS", "GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE"),
    *("TERM", "TMPDIR", "CC", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"),
)
_OF_OTHERS = re.compile("TORCH|SLURM_|CUDA_|PYTORCH_|PYTHON|MLFLOW_|WANDB_")


def test_package_defines_no_environment_variables():
    """The launcher passes everything to ranks in launch.json and an inherited descriptor."""
    places = {
        name: f"{module}:{node.lineno} {name}"
        for module, path in find_modules().items()
        for node in list_nodes(path)
        for name in iterate_variables(node, sets=get_part(module) == "jobs")
    }
    assert {"RANK", "TERM", "PYTHONUNBUFFERED"} <= places.keys()
    assert_none(
        place
        for name, place in places.items()
        if name not in _VARIABLES_OF_OTHERS and not _OF_OTHERS.match(name)
    )


def iterate_variables(node: ast.AST, sets: bool) -> Iterator[str]:
    """Yield the environment variables that an expression reads, or `sets` in a dictionary."""
    names: list[ast.AST | None] = []
    match node:
        case ast.Call(func=ast.Attribute(value=place), args=[name, *_]):
            names = [name] if ast.unparse(place) == "os.environ" else []
        case ast.Subscript(value=place, slice=name):
            names = [name] if ast.unparse(place) == "os.environ" else []
        case ast.Dict(keys=keys) if sets:
            names = [*keys]
    for name in names:
        text = getattr(name, "value", None)
        if isinstance(text, str) and re.fullmatch("[A-Z_]{2,}", text):
            yield text


def iterate_words(module: ast.Module) -> Iterator[tuple[ast.AST, list[str]]]:
    """Yield every node with the identifiers and words in it.

    Docstrings and help pages are skipped.
    """
    docstrings = {node.value for node in ast.walk(module) if isinstance(node, ast.Expr)}
    pages = (node for node in module.body if ast.unparse(node).startswith("USAGE = "))
    page_nodes = {part for page in pages for part in ast.walk(page)}
    for node in {*ast.walk(module)} - page_nodes:
        parts = [getattr(node, field, "") for field in ("id", "attr", "arg", "name", "module")]
        if isinstance(node, ast.Constant) and node not in docstrings:
            parts.append(node.value)
        yield node, re.findall(r"\w+", " ".join(part for part in parts if isinstance(part, str)))


def test_modules_used_by_package_name_are_imported():
    """Otherwise the module only exists if another module imported it before."""
    wrong = []
    for module, path in find_modules().items():
        imported = {
            (alias.asname or alias.name): f"{node.module}.{alias.name}"
            for node in list_nodes(path)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in list_nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                package = imported.get(node.value.id)
                name = f"{package}.{node.attr}"
                if name in find_modules() and name not in list_imports(package) | list_imports(
                    module
                ):
                    wrong.append(f"{module}:{node.lineno} {name}")
    assert_none(wrong)


@cache
def list_imports(module: str) -> set[str]:
    imports = [node for node in list_nodes(find_modules()[module]) if hasattr(node, "names")]
    return {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in imports
        for alias in node.names
        if isinstance(alias, ast.alias)
    } | {getattr(node, "module", "") for node in imports}


#: Patterns of forbidden calls: they run text or files as code.
FORBIDDEN = (
    r"(compile|__import__)\(.*",
    r"torch\.load\((?!.*weights_only=True).*",
    r".*\b(weights_only=False|allow_pickle=True).*",
    # allowed: a literal module name, or a module of this package, f"resnet_recipes.jobs.{name}"
    r"(importlib\.)?import_module\((?!('[\w.]+'|f'resnet_recipes\.[\w.]*\{\w+\}')\)).*",
)


@pytest.mark.parametrize(
    ("argument", "is_allowed"),
    parse_values("""
"'torch'" | true
"f'resnet_recipes.jobs.{name}'" | true
name | false
"f'{package}.jobs'" | false
"f'resnet_recipes_{name}'" | false
"f'resnet_recipes.{table[name]}'" | false
"""),
)
def test_imports_by_name_stay_inside_the_package(argument, is_allowed):
    call = f"import_module({argument})"
    assert (re.fullmatch("|".join(FORBIDDEN), call) is None) == is_allowed


def test_no_module_runs_text_or_files_as_code():
    assert_none(
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, path in find_modules().items()
        for node in list_nodes(path)
        if isinstance(node, ast.Call) and re.fullmatch("|".join(FORBIDDEN), ast.unparse(node))
    )

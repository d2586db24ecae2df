"""Who may import whom, and what no module may do.

Read from the source, so that new modules are covered at once.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import ROOT, nodes, sources

PACKAGE = "resnet_recipes"

#: From the bottom up. A module imports only from tiers below its own, and from its own room.
TIERS = (
    {"base"},
    {"ops", "backbones", "run_folder"},
    {"methods", "optim", "data"},
    {"recipe"},
    {"estimating"},
    {"report"},
    {"planning", "doctor"},
    {"network"},
    {"training"},
    {"jobs"},
    {"api"},
    {"commands"},
    {"cli", ""},  # "": the package itself, which offers the public names
    {"__main__"},
)

#: Outside packages that only these parts may import.
RESERVED = {
    "hydra": {"recipe"},
    "omegaconf": {"recipe"},
    "rich": {"report", "commands", "cli"},
}


@cache
def modules() -> dict[str, Path]:
    """The file of every module of the package by its dotted name."""
    found = {}
    for path in sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(module: ast.Module, lazily: bool) -> Iterator[ast.AST]:
    """Yield all statements of a module; unless `lazily`, only those that importing it runs."""
    ahead: list[ast.AST] = [module]
    while ahead:
        for child in ast.iter_child_nodes(ahead.pop()):
            if isinstance(child, ast.expr):
                continue
            yield child
            if lazily or not is_postponed(child):
                ahead.append(child)


def is_postponed(node: ast.AST) -> bool:
    """Return whether an import does not run what is inside a statement.

    A function, or what only type checkers read.
    """
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


@cache
def imports(module: str, lazily: bool = True) -> frozenset[str]:
    """Every module that `module` names in an import, and the packages that the import runs."""
    named = set()
    for node in statements(sources()[modules()[module]], lazily):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, line {node.lineno}"
            named |= {
                full if (full := f"{node.module}.{alias.name}") in modules() else node.module
                for alias in node.names
            }
    parts = [name.split(".") for name in named | {module}]
    return frozenset(
        ".".join(part[:length]) for part in parts for length in range(1, len(part) + 1)
    ) - {module}


def reaches(module: str, lazily: bool = True) -> set[str]:
    """Everything that is imported, at any distance, by importing `module`."""
    seen, ahead = set(), [module]
    while ahead:
        for name in imports(ahead.pop(), lazily) - seen:
            seen.add(name)
            if name in modules():
                ahead.append(name)
    return seen


def part(module: str) -> str:
    """Return the first name below the package: "methods" of resnet_recipes.methods.sam."""
    return module.split(".")[1] if "." in module else ""


def tier(name: str) -> int:
    """Return the layer of a part of the package."""
    return next(level for level, names in enumerate(TIERS) if name in names)


@cache
def calls(module: str) -> list[tuple[str, ast.Call]]:
    """Return every call with what it calls, as written: "torch.load"."""
    return [
        (ast.unparse(node.func), node)
        for node in nodes(modules()[module])
        if isinstance(node, ast.Call)
    ]


def keyword(call: ast.Call, name: str) -> object:
    """Return the constant that a call gives for a keyword; None if it gives none or computes it."""
    return next(
        (
            item.value.value
            for item in call.keywords
            if item.arg == name and isinstance(item.value, ast.Constant)
        ),
        None,
    )


def test_every_import_points_downwards():
    wrong = []
    for module in modules():
        own = part(module)
        for name in imports(module):
            other = part(name)
            if not name.startswith(f"{PACKAGE}.") or other == own:
                continue
            if tier(other) >= tier(own):
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(["", *wrong])


def test_the_schema_takes_only_the_contract_from_data():
    names = {name for name in imports(f"{PACKAGE}.recipe.schema") if part(name) == "data"}
    assert names <= {f"{PACKAGE}.data", f"{PACKAGE}.data.base"}


def test_no_modules_import_each_other_in_a_circle_inside_functions_neither():
    arrows = {
        module: {
            name for name in imports(module) & modules().keys() if not module.startswith(f"{name}.")
        }
        for module in modules()
    }
    assert not (wrong := in_circles(arrows)), "\n".join(["", *wrong])


def test_no_folders_import_each_other_in_a_circle():
    """A folder and the folder around it may import each other.

    Data/base.py is the contract of data/files/.
    """
    arrows: dict[str, set[str]] = {}
    for module in modules():
        for name in imports(module) & modules().keys():
            for one, other in zip(folders(module), folders(name), strict=False):
                if one != other:
                    arrows.setdefault(one, set()).add(other)
                    break
    assert not (wrong := in_circles(arrows)), "\n".join(["", *wrong])


def folders(module: str) -> list[str]:
    """Return the chain of modules and folders that `module` lies in, from the package to itself."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def in_circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return every node that can be reached from itself."""

    def reached(start: str) -> set[str]:
        seen, ahead = set(), [start]
        while ahead:
            new = arrows.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        return seen

    return sorted(node for node in arrows if node in reached(node))


def test_the_foundation_needs_only_the_standard_library():
    named = {name for module in modules() if part(module) == "base" for name in imports(module)}
    outside = {name.split(".")[0] for name in named} - set(sys.stdlib_module_names) - {PACKAGE}
    assert outside == set()


def test_nobody_who_plans_trains_or_measures_knows_a_method_by_name():
    """Methods answer questions instead; the help pages show examples."""
    names = {
        ast.literal_eval(node.value)
        for module in modules()
        if part(module) == "methods"
        for node in nodes(modules()[module])
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "name" and node.value
    }
    rooms = ("planning", "training", "jobs", "estimating", "api", "commands")
    wrong = [
        f"{module}:{node.lineno} {word}"
        for module in modules()
        if part(module) in rooms
        for node, words in written(sources()[modules()[module]])
        for word in names.intersection(words)
    ]
    assert names > {"colout", "sam", "ema", "progressive_resizing"}
    assert not wrong, "\n".join(["", *wrong])


def written(module: ast.Module) -> Iterator[tuple[ast.AST, list[str]]]:
    """Yield every node with the words it is written with.

    Its names, or the words of text that is no docstring and no help page.
    """
    docstrings = {node.value for node in ast.walk(module) if isinstance(node, ast.Expr)}
    pages = (node for node in module.body if ast.unparse(node).startswith("USAGE = "))
    shown = {part for page in pages for part in ast.walk(page)}
    for node in {*ast.walk(module)} - shown:
        parts = [getattr(node, field, "") for field in ("id", "attr", "arg", "name", "module")]
        if isinstance(node, ast.Constant) and node not in docstrings:
            parts.append(node.value)
        yield node, re.findall(r"\w+", " ".join(part for part in parts if isinstance(part, str)))


def test_results_can_be_read_without_torch():
    wrong = [
        module
        for module in modules()
        if part(module) in ("report", "run_folder") and "torch" in reaches(module)
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_workers_never_import_hydra():
    workers = [
        module
        for module in modules()
        if part(module)
        in ("training", "network", "optim", "data", "methods", "report", "run_folder")
    ]
    assert workers
    wrong = [
        module for module in workers if "hydra" in reaches(module, lazily=part(module) != "jobs")
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_starting_the_command_imports_neither_torch_nor_hydra():
    reached = reaches(f"{PACKAGE}.cli", lazily=False)
    assert reached & {"torch", "torchvision", "hydra", "omegaconf", "numpy", "rich"} == set()


def test_some_packages_belong_to_one_part():
    wrong = [
        f"{module} imports {name}"
        for module in modules()
        for name, owners in RESERVED.items()
        if name in imports(module) and part(module) not in owners
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_only_the_surface_prints():
    speakers = ("cli", "commands")
    wrong = [
        f"{module}:{call.lineno}"
        for module in modules()
        for name, call in calls(module)
        if name == "print"
        and part(module) not in speakers
        and module != f"{PACKAGE}.report.console"
    ]
    assert not wrong, "\n".join(["", *wrong])


def from_a_fixed_list(name: ast.expr) -> bool:
    """Return whether an expression yields only names in the source.

    So do "ffcv" and f"resnet_recipes.data.{TABLE[key]}".
    """
    if isinstance(name, ast.JoinedStr):
        values = [part.value for part in name.values if isinstance(part, ast.FormattedValue)]
        return all(
            isinstance(value, ast.Subscript) and ast.unparse(value.value).isupper()
            for value in values
        )
    return isinstance(name, ast.Constant)


def test_a_module_that_is_used_by_its_package_s_name_is_imported():
    """Else it depends on who imported it before: in a process of its own it is not there."""
    wrong = []
    for module, path in modules().items():
        packages = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes(path)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{packages.get(node.value.id)}.{node.attr}"
                package = name.rpartition(".")[0]
                if name in modules() and name not in imports(package) | imports(module):
                    wrong.append(f"{module}:{node.lineno} {name}")
    assert not wrong, "\n".join(["", *wrong])


def test_nothing_runs_text_as_code():
    forbidden = {
        "eval",
        "exec",
        "compile",
        "__import__",
        "os.system",
        "os.popen",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "hydra.utils.instantiate",
        "hydra.utils.get_class",
        "hydra.utils.get_method",
        "hydra.utils.get_object",
    }
    wrong = [
        f"{module}:{call.lineno} {name}"
        for module in modules()
        for name, call in calls(module)
        if name in forbidden
    ]
    wrong += [
        f"{module}:{call.lineno} shell=True"
        for module in modules()
        for _, call in calls(module)
        if keyword(call, "shell")
    ]
    wrong += [
        f"{module}:{call.lineno} {name}"
        for module in modules()
        for name, call in calls(module)
        if name.split(".")[-1] == "import_module" and not from_a_fixed_list(call.args[0])
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_nothing_is_unpickled():
    wrong = [
        f"{module} imports {name}"
        for module in modules()
        for name in imports(module)
        & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    ]
    for module in modules():
        for name, call in calls(module):
            if name == "torch.load" and keyword(call, "weights_only") is not True:
                wrong.append(f"{module}:{call.lineno} torch.load without weights_only=True")
            if keyword(call, "weights_only") is False or keyword(call, "allow_pickle"):
                wrong.append(f"{module}:{call.lineno} allows pickles")
            if (
                name.split(".")[-1].endswith(("_object", "_object_list"))
                and name.split(".")[-1].split("_")[0] in COLLECTIVES
            ):
                wrong.append(f"{module}:{call.lineno} {name} sends a pickle")
    assert not wrong, "\n".join(["", *wrong])


COLLECTIVES = ("all", "broadcast", "gather", "scatter", "send", "recv")

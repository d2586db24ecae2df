"""Methods of other packages are used, or rejected with the name of the package to uninstall."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.cli import run_guarded
from resnet_recipes.methods.plug_ins import GROUP, find_plug_ins
from tests.shared.checks import get_problem
from tests.shared.tables import parse_rows

CLASS = """
from dataclasses import dataclass
from resnet_recipes.methods.base import Method

@dataclass
class Theirs(Method):
    name = "{name}"
    cost = gain = avoid_when = "unknown"
    {body}
"""


#: A hook that raises an error, and the function that it calls.
FAILING = """
    def size_after(self, image_size, epoch, horizon):
        fail()

def fail():
    raise {raised}
"""


@pytest.fixture
def install_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)

    def install(source: str, *entries: str) -> None:
        Path(tmp_path, "theirs.py").write_text(source)
        entry_points = EntryPoints(EntryPoint(name, "theirs:Theirs", GROUP) for name in entries)
        module = sys.modules["resnet_recipes.methods.plug_ins"]
        monkeypatch.setattr(module, "entry_points", lambda group: entry_points.select(group=group))

    yield install
    sys.modules.pop("theirs", None)


def test_method_of_another_package_is_found(install_package):
    install_package(CLASS.format(name="theirs", body="alpha: float = 1.0"), "theirs")
    (cls,) = find_plug_ins({"mixup"})
    assert cls().alpha == 1.0


@pytest.mark.parametrize(
    ("name", "body", "entries", "why"),
    parse_rows(
        """
theirs | def __init__(self): raise ValueError("no") | theirs | used: ValueError: no
theirs | strength: float | theirs | used: TypeError: Theirs.__init__() missing 1
theirs | strength: float = "x" | theirs | used: RecipeError:
mixup | pass | mixup | 'mixup', which another method uses
theirs | pass | theirs theirs | 'theirs', which another method uses
theirs | pass | other | 'theirs', which differs from its entry point
class | pass | class | 'class', which Python or the package reserves
problems | pass | problems | 'problems', which Python or the package reserves
Theirs | pass | Theirs | 'Theirs'; names are a letter a-z and up to 63 of
theirs | raise SystemExit(0) | theirs | used: SystemExit: 0
theirs | raise RuntimeError("a\\nb") | theirs | used: RuntimeError: a
"""
    ),
)
def test_invalid_method_of_a_package_is_rejected(install_package, name, body, entries, why):
    install_package(CLASS.format(name=name, body=body), *entries.split())
    problem = get_problem(NotReadyError, list, find_plug_ins({"mixup"}))
    assert why in problem.clause
    assert "\n" not in problem.clause
    assert problem.corrections == ("pip uninstall it",)


@pytest.mark.parametrize(
    "raised", ['ValueError("no\\nway")', "SystemExit(0)", 'OSError(5, "x", "y")']
)
def test_error_in_installed_method_names_its_package(install_package, raised, monkeypatch, capsys):
    install_package(CLASS.format(name="theirs", body="") + FAILING.format(raised=raised), "theirs")
    (method,) = find_plug_ins(set())
    monkeypatch.setattr("resnet_recipes.methods.INSTALLED", (method,))

    def plan(_: object) -> int:
        return method().size_after(32, 0, None)

    assert run_guarded(plan, []) == 3
    message = " ".join(capsys.readouterr().err.split())
    file = sys.modules["theirs"].__file__
    assert f"methods.theirs: size_after failed in {file}:15: {raised[:6]}" in message
    assert "use: '~methods.theirs'" in message


def test_error_outside_installed_methods_names_no_package(install_package, monkeypatch):
    install_package(CLASS.format(name="theirs", body="pass"), "theirs")
    monkeypatch.setattr("resnet_recipes.methods.INSTALLED", tuple(find_plug_ins(set())))
    with pytest.raises(ZeroDivisionError):
        run_guarded(lambda _: 1 // 0, [])

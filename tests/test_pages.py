"""The pages of the repository match its source; `tools/site_check.sh` builds the site."""

import ast
import fnmatch
import html
import re
from collections.abc import Iterator
from configparser import ConfigParser

import pytest

from resnet_recipes import cli, cuda
from resnet_recipes.methods import ORDER
from tests.shared.pages import PAGES, iterate_code_blocks
from tests.shared.sources import ROOT, assert_none, list_nodes, parse_sources

PACKAGE = ROOT / "resnet_recipes"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_files_named_in_architecture_exist():
    named = set(re.findall(r"`([\w./]+\.(?:py|yaml))`", PAGES["docs/architecture.md"]))
    assert len(named) > 50
    places = {name: (PACKAGE / name, ROOT / name) for name in named}
    assert [name for name, paths in places.items() if not any(p.exists() for p in paths)] == []


def test_map_lists_every_package():
    lines = CONTRIBUTING.partition("\nresnet_recipes/\n")[2].partition("\ntests/")[0].splitlines()
    mapped = {
        name
        for line in lines
        for name in re.findall(r"[\w.]+", line[2:29])
        if re.match(r" {2}\S", line)
    }
    folders = (path for path in PACKAGE.iterdir() if not path.is_symlink())  # recipes/ is a link
    packages = {path.name for path in folders if (path / "__init__.py").exists()}
    assert mapped == packages | {path.name for path in PACKAGE.glob("[!_]*.py")}


def test_documented_layers_match_import_linter():
    sentence = CONTRIBUTING.partition("imports only from parts below it: ")[2].partition(".\n")[0]
    written = [set(re.findall(r"`(\w+)`", layer)) for layer in sentence.split(">")]
    checked = ConfigParser()
    checked.read(ROOT / ".importlinter")
    layers = checked["importlinter:contract:layers"]["layers"].strip().splitlines()
    assert written == [set(layer.split(" | ")) for layer in layers[1:]]


#: Folders searched for tests whose folder the faults page does not name.
FAULT_FOLDERS = ("jobs", "run_folder", "training", "commands")


def test_tests_named_in_faults_exist():
    """Each file is in one of the folders on the page, and contains the tests listed for it."""
    page = PAGES["docs/contributing/faults.md"].replace("survival `", "`test_survival.py` `")
    places = re.findall(r"`([a-z/]*test_\w+\.py)`((?:,? `[\w*]*_[\w*]*`)*)", page)
    assert len(places) > 60
    missing = []
    for name, tests in places:
        folders = [ROOT / "tests" / folder for folder in FAULT_FOLDERS]
        files = [path for folder in folders for path in folder.rglob(name)]
        files = [ROOT / name] if name.startswith("tests/") else files
        text = "\n".join(path.read_text() for path in files if path.exists())
        missing += [name] if not text else []
        for test in re.findall(r"[\w*]+", tests):
            if not re.search(f"def {test.replace('*', '.*')}\\(", text):
                missing.append(f"{name} {test}")
    assert missing == []


def test_tests_named_on_pages_exist():
    paths = list((ROOT / "tests").rglob("test_*.py"))
    functions = re.findall(r"def (test_\w+)\(", "".join(path.read_text() for path in paths))
    names = [*functions, *(path.stem for path in paths)]
    pages = PAGES | {"CONTRIBUTING.md": CONTRIBUTING}
    assert_none(
        f"{page}: {name}"
        for page, text in pages.items()
        for name in set(re.findall(r"`(test_[\w*]+)`", text))
        if not fnmatch.filter(names, name)
    )


def test_readme_is_short_and_its_links_exist():
    text = PAGES["README.md"]
    assert len(text.splitlines()) <= 150
    places = re.findall(r"\]\(([^)]+)\)", text)
    local = [place for place in places if not place.startswith("https://")]
    assert [place for place in local if not (ROOT / place).exists()] == []
    assert {"docs/published.png", "docs/plan.svg"} <= set(places)


def test_readme_terminal_matches_current_output(capsys, monkeypatch, tmp_path):
    """The output is that of a machine without a GPU and without measurements."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "find_gpus", cuda.VisibleGpus)
    assert cli.main(["plan", "mild", "gpus=8"]) == 0
    drawn = html.unescape(re.sub(r"<[^>]+>", " ", (ROOT / "docs/plan.svg").read_text()))
    screen = " ".join(drawn.replace("\xa0", " ").split())
    for line in capsys.readouterr().out.splitlines():
        assert " ".join(line.split()) in screen


#: An argument that a shell would change: ~ expands, and [ starts a pattern.
BARE = re.compile(r"(?<![\w.'`/{])(?:~(?:methods|optimizer)\.|[a-z][\w.]*=\[(?=[\w\]])(?!\w-))")

#: Modules that quote their arguments before printing, or contain no arguments.
OTHERS = {"completion.py"}


def iterate_messages() -> Iterator[str]:
    """Yield all strings of the package but docstrings and quoted changes, with their places."""
    for path in parse_sources():
        if path.name in OTHERS:
            continue
        ignored = {id(node.value) for node in list_nodes(path) if isinstance(node, ast.Expr)}
        for node in list_nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Change":
                ignored |= {id(part) for part in ast.walk(node.args[0])}
        for node in list_nodes(path):
            if id(node) in ignored:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "{}") for part in node.values]
                text = "".join(part if isinstance(part, str) else "{}" for part in parts)
            elif isinstance(node, ast.Constant):
                text = str(node.value)
            else:
                continue
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {text}"


def test_determinism_lists_methods_that_sample_on_device():
    """Their random numbers depend on the rank, so results depend on the number of ranks."""
    page = PAGES["docs/determinism.md"].partition("## The number of ranks")[2]
    sources = {path.stem: path.read_text() for path in (PACKAGE / "methods").glob("[!_]*.py")}
    sampling = {
        method.name
        for method in ORDER
        if method.is_random_in_forward or "now.rng" in sources[method.__module__.rpartition(".")[2]]
    }
    assert len(sampling) > 5
    assert_none(name for name in sorted(sampling) if f"`{name}`" not in page)


def test_messages_name_no_file_that_an_installation_lacks():
    assert [text for text in iterate_messages() if re.search(r"docs/\w", text)] == []


def iterate_command_lines() -> Iterator[str]:
    """Yield the lines of the pages that run a command of this package, without comments."""
    for page in PAGES:
        for _, block in iterate_code_blocks(page, "", "sh", "bash", "console"):
            yield from (
                line.partition(" # ")[0] for line in block.splitlines() if "resnet-" in line
            )


@pytest.mark.parametrize("texts", [iterate_messages, iterate_command_lines])
def test_suggested_commands_survive_every_shell(texts):
    commands = list(texts())
    assert len(commands) > 100
    assert [text for text in commands if BARE.search(text)] == []

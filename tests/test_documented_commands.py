"""Every command in README.md and docs/ works as written.

Those that take long are planned, the others are run.
"""

import glob
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
import yaml

from resnet_recipes import cli
from resnet_recipes.commands.arguments import split
from resnet_recipes.commands.verbs import get_usage
from resnet_recipes.data import demo
from tests.run_folders import run_folder

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}

#: Flags of `resnet-train` with which it starts nothing.
ASKS = {"--list", "--describe", "--cfg", "--version", "--help", "--dry-run"}

#: What is added to a command, so that it takes no time.
BRIEF = {"convert": ["--dry-run"], "watch": ["--once"]}

#: Commands that need a minute of this machine, or a trained network: their flags are read, and
#: recipes composed.
LONG = {"estimate", "eval", "predict", "export", "teach"}

#: Words that stand for others: of a sweep one value is enough, and some name what is not there.
FEWER = {
    "epochs=curve": "epochs=22.5,30",
    "seed=1,2,3": "seed=1",
    "seed=1,2": "seed=1",
    "data.share=0.1,0.3,1": "data.share=0.3",
    "data.fold=1/5,2/5,3/5,4/5,5/5": "data.fold=1/5",
    "budget=$20": "budget=9h",
    "budget=30m,1h,2h": "budget=9h",  # which is not too little on any CPU
    "CHOSEN": "tiny_mild",  # by the command before
    "recipe=tiny_mild,tiny_taught": "recipe=tiny_mild",  # tiny_taught needs a teacher's file
}


SHELL = ("", "sh", "bash", "console")

#: Words of runs whose plans need weights from elsewhere, or seconds to try a network at all sizes.
UNPLANNED = (
    *("finetune", "recipe=finetune", "model.weights=", "methods.distill."),
    *("model.name=timm:", "model.name=torchvision:"),
)


def fenced(page: str, *languages: str) -> Iterator[tuple[str, str]]:
    """Yield the code blocks of a page in one of these languages, "" where none is named.

    Language and block. A command in a table counts as a block.
    """
    for language, block in re.findall(
        r"^```(\w*)[^\n]*\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE
    ):
        if language in languages:
            yield language, block
    if "" in languages:  # what fills a cell of a table, and is no placeholder
        for command in re.findall(r"(?<=\| )`(resnet-[^`]*[/=][^`]*)`(?= \|)", PAGES[page]):
            yield "", command


def lines(page: str) -> Iterator[list[str]]:
    """Yield the words of every shell line, one list a command.

    Comments and what is piped on are left out.
    """
    for _, block in fenced(page, *SHELL):
        yield from commands(block)


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words of the shell lines of a block."""
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r" && | \| ", line.removeprefix("$ ")):
            try:
                yield shlex.split(part, comments=True)
            except ValueError:  # a table or a tree, with a lone quote
                continue


def own(words: list[str]) -> tuple[str, list[str]] | None:
    """Return which of the two commands a line starts, under any launcher, and its words.

    None for other lines.
    """
    for name in ("resnet-train", "resnet-recipes", "resnet_recipes"):
        if name in words:
            return name.replace("_recipes", "-train"), words[words.index(name) + 1 :]
    return None


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 24 synthetic images under 2,100 names, a step of every recipe."""
    root = demo.write(tmp_path_factory.mktemp("synthetic") / "set", train_images=1, val_images=1)
    for folder in (root / "train").iterdir():
        for number in range(175):
            (folder / f"{number}.jpg").symlink_to("0000.jpg")
    return root


@pytest.fixture
def home(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, where the user is at home."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/demo").symlink_to(images)  # which `resnet-train demo` draws
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")  # pages name files of the repository
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(map(own, lines(page))) or any(fenced(page, "yaml"))],
)
def test_every_command_of_the_page_works(page, images, home):
    for name in {"a", *re.findall(r"\bruns/([\w-]+)", PAGES[page])}:
        run_folder(home / "runs", name)
    failed = []
    for language, block in fenced(page, *SHELL, "yaml"):
        if language == "yaml":
            recipe = edited(block, home)
            assert cli.main(["validate", str(recipe)]) == 0
            continue
        for name, words in filter(None, map(own, commands(block))):
            # its run is there already, for the commands that follow
            words = [word for word in words if not word.startswith("run=")]
            code, said = attempt(name, placed(words, images, home))
            if code:
                failed.append(f"{name} {shlex.join(words)}\n{said}")
    assert not failed, "\n\n".join(["", *failed])


def placed(words: list[str], images: Path, home: Path) -> list[str]:
    """Return the words with paths under `home`, and images at every place that a word names."""
    moved = [re.sub(r"(^|=)(/data/|/storage/|~/)", rf"\1{home}/", word) for word in words]
    moved = [re.sub(r"^data=\w+://(.*?)/[\w.]*$", rf"data={home}/\1", word) for word in moved]
    sources = [
        word.removeprefix("data=") for word in moved if word.startswith(("data=", f"{home}/"))
    ]
    if moved[:1] == ["convert"]:
        sources = moved[1:2]
        for target in filter(os.path.islink, moved[2:3]):
            os.unlink(target)  # which another command reads
    elif moved[:2] == ["doctor", "data"]:
        sources += moved[2:3]
    wants_val = any(word.startswith("data.val_share=") for word in words)
    for place in sources:
        if not Path(place).exists():
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            Path(place).symlink_to(images / "train" if wants_val else images)
    return [
        path
        for word in moved
        for path in (sorted(glob.glob(word)) if "*" in word else []) or [word]
    ]


def attempt(name: str, words: list[str]) -> tuple[int, str]:
    """Run a command, or what of it can be run here.

    Return its exit code and what it said, 0 for success.
    """
    target = words[words.index(">") + 1] if ">" in words else None
    words = [FEWER.get(word, word) for word in (words[: words.index(">")] if target else words)]
    code, said = trained(tuple(words)) if name == "resnet-train" else asked(words)
    if target and not code:
        Path(target).parent.mkdir(exist_ok=True)
        Path(target).write_text(said)
    return code, said


@cache
def trained(words: tuple[str, ...]) -> tuple[int, str]:
    """Plan what the command would train, or compose it if its plan needs weights from elsewhere.

    Nothing is started.
    """
    is_new = "--extend" not in words and any(word.startswith("recipe=") for word in words)
    if {"--resume", "--extend"} & set(words) and not is_new:
        return 0, "\n".join(split(words, get_usage("train")).words)
    if "--resume" in words:
        at = words.index("--resume")
        words = words[:at] + words[at + 2 :]
    ask = "--cfg" if any(word.startswith(UNPLANNED) for word in words) else "--dry-run"
    return heard(cli.train, [*words] if ASKS & set(words) else [*words, ask])


def asked(words: list[str]) -> tuple[int, str]:
    """Run a command of `resnet-recipes`; a doctor may find fault with this machine."""
    verb, *rest = words
    if verb in LONG and "--help" not in rest:
        arguments = split(rest, get_usage(verb))
        recipe = any(word.startswith("recipe=") for word in arguments.words)
        return trained(tuple(arguments.words)) if recipe else (0, "")
    if {"--png", "--fix-val"} & set(rest):
        split(rest, get_usage(verb))  # plots take seconds; --fix-val needs a file
        return 0, ""
    code, said = heard(
        cli.main, [verb, *rest, *BRIEF.get(verb, []), *["--no-images"] * (rest[:1] == ["data"])]
    )
    return (0 if verb == "doctor" and code == 3 else code), said


def heard(entry: object, words: list[str]) -> tuple[int, str]:
    """Run one of the two commands in this process; return its exit code, and its output."""
    with redirect_stdout(StringIO()) as out:
        return entry(words), out.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_have_flags_that_exist(page):
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`(resnet-(?:train|recipes) [^`]*)`", text):
        name, words = own(shlex.split(span.replace("...", "")))
        if name == "resnet-recipes" and words[0].startswith("-"):
            continue
        usage = get_usage("train") if name == "resnet-train" else get_usage(words[0])
        split([word for word in words[name == "resnet-recipes" :] if word != "--help"], usage)


def script_of(words: list[str]) -> Path | None:
    """Return the file of ours that a command runs with Python, on the null device or not."""
    if words[0] not in ("python", "python3"):
        return None
    names = [word for word in words[1:] if word != "tools/null_device/run.py"]
    if not names or not names[0].startswith(("benchmarks/", "tools/")):
        return None
    path = ROOT / names[0]
    return path / "__main__.py" if path.is_dir() else path


@pytest.mark.parametrize("page", PAGES)
def test_targets_scripts_and_extras_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = [*lines(page), *(span.split() for span in re.findall(r"`([^`]+)`", PAGES[page]))]
    for words in filter(None, commands):
        if words[0] == "make" and len(words) == 2:
            assert f"\n{words[1]}:" in makefile
        if script := script_of(words):
            source = script.read_text(encoding="utf-8")
            flags = [word.partition("=")[0] for word in words if word.startswith("--")]
            assert [flag for flag in flags if f'"{flag}"' not in source] == []
        for extra in re.findall(r"(?:'\.|resnet-recipes)\[([\w,]+)\]", " ".join(words)):
            assert set(extra.split(",")) <= set(project["optional-dependencies"])


def edited(block: str, home: Path) -> Path:
    """Save a recipe of the page under its name, and return the file."""
    path = home / f"recipes/{yaml.safe_load(block)['name']}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(block)
    return path


@pytest.mark.parametrize("page", [page for page in PAGES if any(fenced(page, "python"))])
def test_python_of_the_page_is_python(page):
    for _, block in fenced(page, "python"):
        compile(block, page, "exec")

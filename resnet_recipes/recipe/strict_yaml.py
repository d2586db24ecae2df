"""Read recipe files: plain YAML that has one meaning for every reader.

A recipe may be untrusted. Strict rules apply before other code reads it: names and plain values in
mappings and lists, as in the core schema of YAML 1.2. Anchors, aliases, tags, merge keys and
duplicate keys are rejected, and so are values that YAML 1.1 readers interpret differently (`no`,
`010`, `1:30`). The limits below bound time and memory.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NoReturn

import yaml

from resnet_recipes.base.errors import (
    Change,
    Command,
    Fix,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.names import SHORT_NAMES, find_short_name, get_full_name
from resnet_recipes.base.reading import read_bytes
from resnet_recipes.base.suggestions import FOREIGN_VALUES, SETTING, find_closest, translate_key

MAX_YAML_BYTES = 64 * 1024
MAX_YAML_DEPTH = 6
MAX_NODES = 4000
MAX_REFERENCES = 16
MAX_TEXT = 4096  # characters per value

#: libyaml takes a twentieth of the time of the Python parser.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Sections that a recipe can select by name; each has a folder with its options.
GROUPS = ("optimizer", "schedule")

#: The short name of each setting that has one, including `epochs`.
_SHORT_IN_FILE = {get_full_name(word): word for word in SHORT_NAMES}

_SETTING_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_ASSIGNMENT = re.compile(r"([a-z][\w.]*)\s*(=)\s*([^\s#]+).*")
_DEFAULTS_KEY = re.compile(r"(override )?/?[a-z]{1,64}")  # in the Hydra grammar
_REFERENCE = re.compile(r"\$\{[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\}")

#: Unquoted values: the core schema of YAML 1.2 without values that YAML 1.1 reads differently.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?")
_OLD_BOOL = re.compile(r"y|n|yes|no|on|off", re.IGNORECASE)
_OLD_NUMBER = re.compile(
    r"[-+]?(0[0-9_]+|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*_[0-9_.]*"
    r"|[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?)"
)


@dataclass
class Document:
    """The content of one recipe file."""

    path: Path
    tree: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)  # "optimizer.lr" -> line of the key
    raw: bytes = b""
    problems: list[Problem] = field(default_factory=list)  # their keys are not in the tree

    def locate(self, key: str) -> str:
        """Return the file and line of a key or its section; only the file if it sets neither."""
        path = shorten_path(self.path)
        line = self.lines.get(key) or self.lines.get(key.rpartition(".")[0])
        return f"{path}:{line}" if line else path

    def format_fix(self, key: str, fix: str) -> Iterator[str]:
        """Yield the settings of a fix for `key` as lines of this file; other advice as it is."""
        change = Change(f"{key}={fix}") if isinstance(fix, Value) else fix
        is_setting = change[:1] == "~" or SETTING.match(change.lstrip("'"))
        if isinstance(fix, Hint | Command) or not is_setting:
            is_other = isinstance(fix, Hint | Command) or re.fullmatch(r"[\w.]*", change)
            yield _SHORT_IN_FILE.get(fix, fix) if is_other else Hint(f"on the command line: {fix}")
            return
        section = key.rpartition(".")[0]
        if change == f"~{section}":
            yield Hint(f"{section.rpartition('.')[2]}: null turns it off")
            return
        above = [*accumulate(key.split(".")[:-1], "{}.{}".format)][::-1]
        above = [f"{section}." for section in above if section in self.lines]
        lines: dict[str, dict[str, str]] = {}
        words = [change] if isinstance(change, Change) else shlex.split(change)
        for word in chain.from_iterable(map(_convert_argument, words)):
            name, _, value = word.partition("=")
            full = get_full_name(name)
            short = find_short_name(name)
            name = next((full[len(prefix) :] for prefix in above if full.startswith(prefix)), short)
            section, _, leaf = name.rpartition(".")
            lines.setdefault(section, {})[leaf] = f"{leaf}: {value or repr('')}"
        for section, leaves in lines.items():
            settings = leaves.values()
            names = section.split(".")[::-1]
            line = reduce(lambda inner, outer: f"{outer}: {{{inner}}}", names, ", ".join(settings))
            yield from [line] if section else settings


def _convert_argument(argument: str) -> tuple[str, ...]:
    """Return an argument as settings of a file, where options and removed methods differ."""
    name, _, value = argument.lstrip("~").partition("=")
    if name in GROUPS:
        option = FOREIGN_VALUES.get(f"{name}.name", {}).get(value)
        return option.words if option else (f"{name}.name={value}",)
    if name == "recipe":
        return (f"defaults=[{value.strip('[]')}]",)
    return (f"{name}=null" if argument[0] == "~" else argument,)


def load(path: Path, references: bool = False) -> Document:
    """Read one recipe file; `references` allows ${section.key}.

    Raises RecipeError if it cannot be read or breaks a rule.
    """
    try:
        raw = read_bytes(path, MAX_YAML_BYTES)
    except NotReadyError as error:
        name = shorten_path(path)
        raise RecipeError(problem._replace(key=name) for problem in error.problems) from None
    return parse(raw, path, references)


def load_frozen(path: Path) -> Document:
    """Read the recipe of a run. Raises NotReadyError if it cannot be read or breaks a rule."""
    lost = Hint("restore this file of the run from a copy, or start a new run")
    if not path.exists():
        raise NotReadyError.at(shorten_path(path), "", lost, Kind.ABSENT)
    try:
        document = load(path)
        RecipeError.raise_if_any(document.problems)
        return document
    except RecipeError as error:
        raise NotReadyError(
            problem if isinstance(problem.fix, Hint) else problem._replace(fix=lost)
            for problem in error.problems
        ) from None


@lru_cache(64)  # the runs of a sweep use the same files
def parse(raw: bytes, path: Path, references: bool = False) -> Document:
    """Read a recipe from bytes; `path` is its name in messages.

    The document is cached: do not change it. Raises RecipeError if it cannot be read to its end.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw[: error.start].count(b"\n") + 1
        location = f"{shorten_path(path)}:{number}"
        fix = Hint("save the file as UTF-8")
        raise RecipeError.of(location, None, "is not UTF-8 text", fix) from None
    reader = _Reader(path, references)
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#\s*@package", line):
            clause = "is an instruction to Hydra, which recipes do not use"
            reader.reject(number, line.strip(), clause, Hint("delete the line"))
        if match := _ASSIGNMENT.fullmatch(line):
            settings = Document(path, {}).format_fix("", Change("".join(match.groups())))
            clause = Statement("settings are written key: value")
            reader.reject(number, line, clause, tuple(settings))
    try:
        reader.check(yaml.parse(text, Loader=_LOADER))
        tree = reader.read_tree(yaml.compose(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        RecipeError.raise_if_any(reader.problems)  # such as assignments
        lines = text.splitlines()
        mark = error.problem_mark or error.context_mark
        if mark and mark.line >= len(lines):  # the end of the file: something is not closed
            mark = error.context_mark or mark
        number = mark.line + 1 if mark else 1
        has_tab = re.match(r" *\t", [*lines, "", ""][number - 1])
        why = "is indented with a tab" if has_tab else f"is not YAML: {error.problem}"
        hint = "indent with spaces, two for each level"
        reader.stop(
            number, why, Hint(hint if has_tab else f"{hint}, and put unusual text in quotes")
        )
    except yaml.YAMLError as error:
        reader.stop(1, f"is not YAML: {' '.join(str(error).split())[:120]}")
    return Document(path, tree, reader.lines, raw, reader.problems)


def shorten_path(path: Path) -> str:
    """Return a path for a message: relative if it is below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


class _Reader:
    """Reads YAML as plain values; records the line of every key and each violation."""

    def __init__(self, path: Path, references: bool):
        self.path = path
        self.references = references
        self.used_references = 0
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []

    def reject(self, line: int, value: object, clause: str, fix: Fix = ()) -> None:
        """Record a problem at a line."""
        location = self._format_location(line)
        self.problems.append(
            Problem(location if value is None else f"{location}: {value}", None, clause, fix)
        )

    def _format_location(self, line: int) -> str:
        return f"{shorten_path(self.path)}:{line}"

    def stop(self, line: int, clause: str, fix: Fix = ()) -> NoReturn:
        """Record a problem and raise RecipeError, because reading cannot continue."""
        self.reject(line, None, clause, fix)
        raise RecipeError(self.problems)

    def check(self, events: Iterable[Any]) -> None:
        """Record forbidden YAML features. Raises RecipeError if no tree can be built."""
        documents = nodes = depth = anchors = 0
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    clause = "a second document starts here; a recipe is a single document"
                    self.stop(line, Statement(clause))
                if event.tags or event.version:
                    clause = Statement("YAML directives (%...) are not used in recipes")
                    self.reject(line, None, clause, Hint("delete the line"))
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            nodes += isinstance(event, yaml.NodeEvent)
            if depth > MAX_YAML_DEPTH:
                self.stop(line, f"is nested more than {MAX_YAML_DEPTH} levels deep")
            if nodes > MAX_NODES:
                self.stop(
                    line, f"has more than {MAX_NODES:,} names and values, too many for a recipe"
                )
            if name := getattr(event, "anchor", None):
                anchors += 1
                sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
                clause = Statement("anchors and aliases are not used in recipes")
                self.reject(line, f"{sign}{name}", clause, Hint("write the value out"))
            if tag := getattr(event, "tag", None):
                self.reject(
                    line, tag, Statement("tags are not used in recipes"), Hint("delete the tag")
                )
        if anchors:  # aliases could form a cycle
            raise RecipeError(self.problems)

    def read_tree(self, root: yaml.Node | None) -> dict[str, Any]:
        """Return the values of a document, without those that break a rule.

        Raises RecipeError if the document is not a mapping or is empty.
        """
        tree = self._read_value(root, "") if isinstance(root, yaml.MappingNode) else {}
        if not self.problems and not tree:
            clause = Statement("a recipe consists of settings, one per line")
            self.stop(1, clause, "defaults: [mild]")
        return tree

    def _read_value(self, node: yaml.Node, key: str) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._read_scalar(node, node.start_mark.line + 1, key)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._read_value(item, f"{key}.{index}") for index, item in enumerate(node.value)
            ]
        tree: dict[str, Any] = {}
        for head, item in node.value:
            count = len(self.problems)
            line = head.start_mark.line + 1
            name = self._read_key(head, key)
            full = f"{key}.{name}" if key else name
            if name in tree:
                clause = f"is a duplicate key; the first is on line {self.lines[full]}"
                self.reject(line, full, clause, Hint("delete one of them"))
            is_valid_key = len(self.problems) == count
            value = self._read_value(item, full)
            if isinstance(value, dict) and isinstance(tree.get(name), dict):
                tree[name] |= value
            elif len(self.problems) == count or (is_valid_key and isinstance(value, dict)):
                self.lines[full], tree[name] = line, value
        return tree

    def _read_key(self, node: yaml.Node, section: str) -> str:
        line = node.start_mark.line + 1
        form = _DEFAULTS_KEY if section.startswith("defaults.") else _SETTING_NAME
        if not isinstance(node, yaml.ScalarNode):
            self.stop(line, Statement("a key must be a name"))
        name = node.value
        if name == "hydra":
            self.reject(
                line, name, Statement("a recipe cannot configure Hydra"), Hint("delete the block")
            )
        elif name == "<<":
            fix = ("defaults: [hot]", Hint("or write the values out"))
            self.reject(line, name, Statement("merge keys are not used in recipes"), fix)
        elif not form.fullmatch(name):
            self.problems.append(
                _make_key_problem(name[:80])._replace(where=self._format_location(line))
            )
        return name

    def _read_scalar(self, node: yaml.ScalarNode, line: int, key: str) -> Any:
        text = node.value
        if odd := next((char for char in text if not char.isprintable() and char != "\n"), ""):
            self.reject(line, None, f"contains the invisible character {odd!a}", Hint("delete it"))
        if len(text) > MAX_TEXT:
            clause = f"a value has more than {MAX_TEXT:,} characters, so this is not a recipe"
            self.stop(line, Statement(clause))
        if "???" in text:
            self.reject(
                line, text[:80], Statement("??? means a missing value"), Hint("write the value out")
            )
        if "${" in text:
            self._check_reference(text, line)
        if node.style:
            return text
        if doubt := find_text_problem(text, key):
            self.reject(line, doubt.key or None, doubt.clause, doubt.fix)
        return parse_scalar(text)

    def _check_reference(self, text: str, line: int) -> None:
        self.used_references += 1
        clause = ""
        if not _REFERENCE.fullmatch(text):
            clause = "is not a reference to one setting, as in ${optimizer.lr}"
        elif not self.references:
            clause = Statement("references are only read from recipes in your own ./recipes folder")
        elif self.used_references > MAX_REFERENCES:
            clause = f"is one reference too many; a recipe may have {MAX_REFERENCES}"
        if clause:
            self.reject(line, text[:80], clause, Hint("write the value out"))


def _make_key_problem(name: str) -> Problem:
    if re.fullmatch(r"\w+(\.\w+)+", name):
        fix: Fix = Hint(*Document(Path(), {}).format_fix("", Change(f"{name}=...")))
    else:
        plain_name = re.sub(r"[^\x20-\x7e]|^[+~-]+", "", name).replace("-", "_").lower()
        likely_name = find_closest(plain_name, [*_SHORT_IN_FILE, *SHORT_NAMES])
        if not (fix := _SHORT_IN_FILE.get(likely_name, likely_name)):
            problem = translate_key(Problem.unknown_setting(plain_name.strip("_"), "..."))
            document = Document(Path(), {})
            fix = tuple(line for text in problem.advice for line in document.format_fix("", text))
    return Problem.unknown_setting(name, fix=fix)


def find_text_problem(text: str, key: str) -> Problem | None:
    """Return a problem if YAML readers interpret an unquoted text differently.

    `key` is the full name of the setting.
    """
    section, _, name = key.rpartition(".")
    if text == "":
        return Problem("", None, "has no value", Hint("write null, {} or ''"))
    if not (_OLD_BOOL.fullmatch(text) or _OLD_NUMBER.fullmatch(text)):
        return None
    hint = f"write true, false or a decimal number, or '{text}' in quotes"
    if section == "methods":
        hint = f"{name}: {{}} turns it on, {name}: null off"
    clause = "is read differently by different YAML readers"
    return Problem(f"{name}: {text}", None, clause, Hint(hint))


def parse_scalar(text: str) -> Any:
    """Return the value of unquoted text: null, true, false, a number, or the text itself."""
    if text in ("null", "Null", "NULL", "~", ""):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text

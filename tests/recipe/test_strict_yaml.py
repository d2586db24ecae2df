"""Recipe files are read as plain YAML, and rejected with the line of each problem."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.strict_yaml import MAX_YAML_DEPTH, parse
from tests.shared.checks import get_error
from tests.shared.tables import parse_rows

PATH = Path("recipes/mine.yaml")


def explain_rejected_yaml(text: str | bytes, references: bool = False) -> str:
    """Return the message of the reader for a rejected file."""
    data = text if isinstance(text, bytes) else text.encode()

    def read_strictly() -> None:
        RecipeError.raise_if_any(parse(data, PATH, references).problems)

    return str(get_error(RecipeError, read_strictly))


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_yaml_values_are_parsed_by_their_form():
    text = (
        "name: mine\nseed: 17\nssr: 0.4\nwd: 5.0e-4\nlr: 1e-3\non_it: true\nempty: "
        "null\nlist: [a, 2]\n"
        "quoted: '010'\ndate: 2026-11-20\nmap: {}\n"
    )
    assert parse(text.encode(), PATH).tree == {
        "name": "mine",
        "seed": 17,
        "ssr": 0.4,
        "wd": 5e-4,
        "lr": 1e-3,
        "on_it": True,
        "empty": None,
        "list": ["a", 2],
        "quoted": "010",
        "date": "2026-11-20",
        "map": {},
    }


def test_yaml_nesting_is_read_up_to_its_limit():
    texts = [
        ("{a: " * depth + "1" + "}" * depth).encode()
        for depth in (MAX_YAML_DEPTH, MAX_YAML_DEPTH + 1)
    ]
    assert parse(texts[0], PATH).tree
    with pytest.raises(RecipeError):
        parse(texts[1], PATH)


def test_yaml_document_locates_every_key():
    document = parse(b"name: mine\n\noptimizer:\n  lr: 1\n  # why\n  momentum: 0.9\n", PATH)
    assert document.lines == {"name": 1, "optimizer": 3, "optimizer.lr": 4, "optimizer.momentum": 6}
    assert document.locate("optimizer.momentum") == "recipes/mine.yaml:6"


@pytest.mark.parametrize(
    ("value", "text"),
    parse_rows(
        """
yes | write true, false or a decimal number
No | write true, false or a decimal number
on | write true, false or a decimal number
OFF | write true, false or a decimal number
y | write true, false or a decimal number
010 | decimal number
0777 | decimal number
0x1F | decimal number
0o17 | decimal number
0b11 | decimal number
1_000 | decimal number
1:30 | decimal number
12:30:45 | decimal number
 | has no value
"""
    ),
)
def test_yaml_values_ambiguous_between_readers_are_rejected(value, text):
    message = explain_rejected_yaml(f"name: mine\nseed: {value}\n")
    assert message.startswith("recipes/mine.yaml:2")
    assert text in message


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("name: &x mine", 1, "anchors"),
        ("a: &x 1\nb: *x", 1, "anchors"),
        ("a: 1\n<<: {b: 2}", 2, "merge keys"),
        ("a: !!python/object/apply:os.system ['true']", 1, "tags"),
        ("a: !!str 1", 1, "tags"),
        ("a: 1\nb: 2\na: 3", 3, "a is a duplicate key; the first is on line 1"),
        ("a: 1\n---\nb: 2", 2, "a second document"),
        ("%YAML 1.1\n---\na: 1", 1, "directives"),
        ("hydra:\n  run: {dir: x}", 1, "cannot configure Hydra"),
        ("# @package _global_\nname: mine", 1, "instruction to Hydra"),
        ("name: mine\n  # @package foo", 2, "instruction to Hydra"),
        ("name: mine\noptimizer: {_target_: os.system}", 2, "unknown setting"),
        ("optimizer.lr: 1", 1, "hint:  lr: ..."),
        ("1: 2", 1, "unknown setting"),
        ("? [a, b]\n: 1", 1, "must be a name"),
        ("name: 'a\\0b'\nx: \"a\\0b\"", 2, "invisible character"),
        ("a: ${oc.env:HOME}", 1, "is not a reference"),
        ("a: ${b}", 1, "your own ./recipes folder"),
        ("a: x${b}", 1, "is not a reference"),
        ("- a\n- b", 1, "a recipe consists of settings"),
        ("just text", 1, "a recipe consists of settings"),
        ("", 1, "a recipe consists of settings"),
        ("a: [1, 2\nb: 3", 2, "not YAML"),
        ("a:\n\t- 1", 2, "is indented with a tab"),
        ("a:\n  b: [1\n", 2, "is not YAML: did not find"),
        ("a: 'open\n", 1, "not YAML"),
        ("a: 1\n b: 2", 2, "not YAML"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        (b"a: \x00", 1, "not YAML"),
        ("a: ???", 1, "missing value"),
        ("methods:\n  ema: off", 2, "ema: {} turns it on, ema: null off"),
        ("a: " + "[" * 50 + "]" * 50, 1, "nested more than"),
        ("a: [" + "1, " * 4100 + "1]", 1, "more than 4,000 names and values"),
        ("a: '" + "x" * 5000 + "'", 1, "more than 4,096 characters"),
        (BOMB, 1, "anchors"),
    ],
)
def test_unsafe_recipe_file_is_rejected_with_its_line(text, line, expected):
    message = explain_rejected_yaml(text)
    assert f"recipes/mine.yaml:{line}" in message
    assert expected in message


@pytest.mark.parametrize(
    ("line", "fix"), [("epochs = 5", "epochs: 5"), ("optimizer.lr=1  # peak", "lr: 1")]
)
@pytest.mark.parametrize("text", ["{}\n", "defaults: [mild]\n{}\nseed: 5\n"])
def test_assignment_is_rejected_at_its_line(text, line, fix):
    message = explain_rejected_yaml(text.format(line))
    number = text.splitlines().index("{}") + 1
    clause = "settings are written key: value"
    assert message == f"recipes/mine.yaml:{number}: {line}: {clause}\n    use:   {fix}"


def test_rejected_values_are_not_in_the_tree():
    text = "a: 1\na: 2\nb: yes\nhydra: {c: 1}\nd: {e: 010, f: 3}\ng: {h: 1}\ng: {i: 2}\n"
    document = parse(text.encode(), PATH)
    assert document.tree == {"a": 1, "d": {"f": 3}, "g": {"h": 1, "i": 2}}
    assert [document.lines[key] for key in ("a", "d.f", "g.h", "g.i")] == [1, 5, 6, 7]
    assert len(document.problems) == 5


def test_reused_anchor_name_is_reported_as_an_anchor():
    message = explain_rejected_yaml("a: &x 1\nb: &x 2\nc: *x\n")
    assert [line for line in message.splitlines() if line.startswith("recipes")] == [
        f"recipes/mine.yaml:{line}: {name}: anchors and aliases are not used in recipes"
        for line, name in enumerate(("&x", "&x", "*x"), 1)
    ]


def test_yaml_references_are_parsed_only_where_allowed():
    assert parse(b"a: ${optimizer.lr}\n", PATH, references=True).tree == {"a": "${optimizer.lr}"}
    assert "is not a reference" in explain_rejected_yaml("a: ${oc.env:HOME}\n", references=True)
    assert "one reference too many" in explain_rejected_yaml(
        "".join(f"k{index}: ${{a.b}}\n" for index in range(17)), references=True
    )


def test_large_recipe_file_is_not_read_completely(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_text("# x\n" * 40_000)
    with pytest.raises(RecipeError, match="Larger than 65,536 bytes"):
        strict_yaml.load(path)


def test_load_reports_a_missing_file(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        strict_yaml.load(tmp_path / "none.yaml")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "[" * 30_000,
        "a: " + "{a: " * 8_000,
        "- " * 20_000,
        "&a " * 10_000,
        "a: '" + "x" * 60_000,
    ],
)
def test_hostile_files_are_rejected_in_bounded_time(text):
    explain_rejected_yaml(text)

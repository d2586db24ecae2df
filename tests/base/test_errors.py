"""Problems as text, and the errors that carry them."""

import copy
import json
import pickle

import pytest

from resnet_recipes.base.errors import (
    Change,
    Command,
    Hint,
    Kind,
    Note,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    TrainingError,
    Value,
    get_label,
)


def test_problem_text_joins_section_key_value_and_clause():
    problem = Problem("alpha", -1, "must be positive", "methods.mixup.alpha=0.2").under(
        "methods.mixup"
    )
    assert (
        str(problem)
        == "methods.mixup.alpha=-1 must be positive\n    use:   methods.mixup.alpha=0.2"
    )
    assert str(Problem("data.root", None, "is not set")) == "data.root is not set"


def test_clause_with_its_own_subject_follows_a_colon():
    problem = Problem("gpus", 8, Statement("torch sees no GPU"))
    assert str(problem) == "gpus=8: torch sees no GPU"
    assert problem.about("it") == "it: torch sees no GPU"
    unknown = Problem("recipe", "nope", "unknown recipe", kind=Kind.UNKNOWN, typed="nope")
    assert unknown.about("recipe") == "unknown recipe nope"
    moved = NotReadyError.at("a.pt", "has no tensors").with_key("model.weights", "a")
    assert str(moved) == "model.weights=a: a.pt has no tensors"
    assert str(moved.with_path_replaced("a.pt", "b.pt")) == "model.weights=a: b.pt has no tensors"


def test_long_value_is_cut_after_500_characters():
    shown, cut = (str(Problem("a", "x" * length, "is wrong")) for length in (500, 501))
    assert shown == f"a={'x' * 500} is wrong"
    assert cut == f"a={'x' * 500}... is wrong"


def test_errors_carry_all_problems_and_exit_code():
    problems = [Problem("a", 1, "x"), Problem("b", 2, "y")]
    assert RecipeError(problems).problems == tuple(problems)
    assert str(RecipeError(problems)) == "a=1 x\nb=2 y"
    assert (RecipeError.exit_code, NotReadyError.exit_code, TrainingError.exit_code) == (2, 3, 1)


def test_training_error_prints_fix_after_pickling():
    error = pickle.loads(pickle.dumps(TrainingError("out of memory", ("bs=8", Hint("or 4")))))
    assert error.lines() == ["out of memory", "use:   bs=8", "hint:  or 4"]
    assert str(error) == "out of memory\n    use:   bs=8\n    hint:  or 4"


def test_address_without_secrets_is_printed_unchanged():
    plain = "s3://bucket/a@2x/train.csv and https://host:80/a@b.png"
    assert str(Problem(plain, plain, plain, plain)).count(plain) == 4


def test_alternatives_of_a_note_have_their_own_label():
    rows = Note("it is slow", ("a=1", "b=2", Hint("wait"), "c=3")).list_rows()
    assert [label for label, _ in rows] == ["note", "use", "or", "hint", "or"]


@pytest.mark.parametrize(
    ("advice", "label"),
    [
        (Command("python3.11 -m x"), "try"),
        (Command("nvidia-smi"), "try"),
        (Hint("resnet-recipes show NAME"), "hint"),
        (Value("golden retriever"), "use"),
        (Change("data=my images"), "use"),
        ("data folder", "use"),
    ],
)
def test_label_depends_on_type_of_advice(advice, label):
    assert get_label(advice) == label


def test_command_quotes_its_words():
    assert Command.of("rm", "a b") == "rm 'a b'"


@pytest.mark.parametrize(
    "repeat",
    [
        lambda problem: problem.replace_text("/here/", ""),
        lambda problem: problem._replace(key="data"),
        lambda problem: pickle.loads(pickle.dumps(problem)),
        copy.deepcopy,
    ],
)
def test_copied_problem_keeps_its_command(repeat):
    problem = repeat(Problem("a", None, "is damaged", (Command.of("rm", "/here/a"), Hint("b"))))
    assert [*map(type, problem.advice)] == [Command, Hint]
    assert json.dumps(problem.corrections[0]).startswith('"rm ')


def test_lists_are_printed_as_typed():
    assert str(Problem("methods", ["ema", "sam"], "")) == "methods=[ema, sam] is not valid"
    assert str(Problem("stairs", (["0ep", 1.0],), "")) == "stairs=[[0ep, 1.0]] is not valid"

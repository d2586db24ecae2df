"""Arguments are parsed into keys and values, or rejected with a correction."""

import pytest
import yaml

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.names import SHORT_NAMES
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.hydra_compose import OWN_APPLICATION
from resnet_recipes.recipe.overrides import MAX_LENGTH, Override, parse
from tests.shared.checks import get_problem
from tests.shared.tables import parse_rows

#: Lines of text, including an empty line and a line with a space.
TEXT = r"""
/a=b
/set(1)
/x,/y
/with space
/it's
/back\slash
/end\
/two\\
/quo'\'te
\'
/$odd
/a[0]
/#1
/{a:b}
123
null
true
1e3
~
a:b
"q"
"""


@pytest.mark.parametrize("text", [*TEXT.splitlines(), " "])
def test_text_setting_keeps_the_typed_text(text):
    assert Override("", "data.root", text).read() == text


@pytest.mark.parametrize(
    ("key", "value", "read"),
    parse_rows(
        """
launch.gpus | 4 | 4
launch.gpus | auto | auto
data.workers | 0 | 0
optimizer.lr | 1e-3 | 0.001
optimizer.lr | 1 | 1
optimizer.clip_norm | null | null
data.flip | false | false
schedule.milestones | [30ep,60ep] | [30ep, 60ep]
"""
    ),
)
def test_values_of_untyped_settings_are_read_by_form(key, value, read):
    assert Override("", key, value).read() == yaml.safe_load(read)


def test_every_short_name_expands_to_settings():
    for name, targets in SHORT_NAMES.items():
        overrides, problems = parse([f"{name}=1"])
        assert problems == []
        assert [override.key for override in overrides] == [
            target.split("=")[0] for target in targets
        ]


def test_quotes_around_a_value_are_removed():
    assert parse(["run='a+b'", 'about="x y"'])[0] == [
        Override("run='a+b'", "run.name", "a+b"),
        Override('about="x y"', "about", "x y"),
    ]


@pytest.mark.parametrize(
    ("argument", "message", "fix"),
    [
        *parse_rows(
            """
~ema | only a method or a setting of the optimizer can be removed | '~methods.ema'
epochs=-3 | must be a positive number of epochs | mild uses epochs=36
lr=0,1 | must be one value | lr=0.1
log.to=csv,mlflow | a list needs brackets | 'log.to=[csv,mlflow]'
methods.mixup=true | methods.mixup is a section of settings | 'methods.mixup={}'
methods.ema=off | methods.ema is a section of settings | '~methods.ema'
methods.label_smoothing=0.1 | is a section of settings | methods.label_smoothing.smoothing=0.1
model=resnet18 | model is a section of settings | model.name=resnet18
data.flip={a:1} | must be true or false | mild uses data.flip=true
lr=??? | ??? means a missing value | write the value out
model.config=hot | unknown setting | recipe=hot
seed=interval(1,4) | must be one value | OWN
seed=glob(*) | must be one value | OWN
hydra/sweeper=optuna | Hydra itself cannot be configured | OWN
+hydra/launcher=joblib | Hydra itself cannot be configured | OWN
hydra.sweeper.n_trials=9 | Hydra itself cannot be configured | OWN
hydra.run.dir=. | Hydra itself cannot be configured |
name=exp1 | is the name of the recipe, not of the run | run=exp1
a{b}=3 | unknown setting | resnet-train mild --cfg   prints every setting
{"lr": 0.1} | settings are written key=value | resnet-train mild --cfg   prints every setting
"""
        ),
        (
            f"data.crop_scale={1500 * '['}",
            "at most 4,096 characters and 32 brackets",
            "mild uses 'data.crop_scale=[0.08,1.0]'",
        ),
        (
            f"data.crop_scale={30 * '['}{31 * ']'}",
            "cannot be read",
            "quote the complete argument",
        ),
    ],
)
def test_impossible_override_suggests_a_correction(argument, message, fix):
    assert parse([argument])[0] == []
    problem = get_problem(RecipeError, compose, "mild", [argument], needs_data=False)
    assert message in problem.lines()[0]
    advice = problem.format_fix((*problem.advice, "")[0])
    assert advice == fix.replace("OWN", OWN_APPLICATION)


def test_argument_is_read_up_to_its_limit():
    argument = "about=" + "x" * (MAX_LENGTH - len("about="))
    assert not parse([argument]).problems
    assert parse([f"{argument}x"]).problems


@pytest.mark.parametrize("other", ["ssr=0.5", "max_duration=3ep"])
def test_parse_of_an_iterator_rejects_a_second_duration(other):
    problems = parse(iter(["epochs=18", other])).problems
    assert [problem.key for problem in problems] == ["epochs"]
    assert "sets the total duration" in problems[0].clause

"""`resnet-train` rejects wrong arguments and recipe files, and starts nothing."""

import re
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.tables import parse_rows

BOMB = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nmethods: {ema: *c}\n"


@pytest.fixture(autouse=True)
def _forbid_starting_runs(monkeypatch):
    """Create a folder for recipes, and fail if any run would be started."""
    Path("recipes").mkdir()
    monkeypatch.setattr(
        "resnet_recipes.jobs.launcher.start", lambda *_: pytest.fail("a run was started")
    )


def assert_explained(run_command, arguments: str, *phrases: str) -> None:
    """Run `resnet-train ARGUMENTS`, which must start nothing and name each phrase in its error."""
    out, err = run_command(f"resnet-train {arguments}", 2)
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("error: ")
    for part in phrases:
        assert part in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "row",
    [
        *parse_rows(
            """
recipe= | recipe= is missing
recipe=../x | unknown recipe ../x
recipe=/etc/passwd | recipe files end in .yaml
recipe=a.yml | does not exist
recipe=mild '' | '' is empty
recipe=mild recipe=hot | a run uses one recipe
lr=1 | recipe | is missing
recipe=mild --dryrun | --dryrun | --dry-run
recipe=Mild | unknown recipe Mild; did you mean mild?
recipe = mild lr= 0.1 bs =3 | recipe=mild | lr= 0.1: settings are written key=value | lr=0.1 | bs=3
-m recipe=mild,medium run=x | run=x names one run
-m --resume auto recipe=mild | --resume | cannot be used with -m
-m recipe=mild seed=interval(1,2) | seed=interval(1,2) | no list of values
-m recipe=mild seed=range(0,1000000000) | -m | the maximum is 1,000
recipe=mild --config-dir=/x | --config-dir
recipe=mild --describe | --describe | needs a value
recipe=mild --recipes nowhere | --recipes | is not a folder
--resume auto | no unfinished run
"""
        ),
        (
            "-m recipe=mild,hott data=/x lr=-1,x seed=1,2,3",
            "unknown recipe hott",
            "lr=-1 must be positive",
            "lr=x must be a number",
        ),
    ],
)
def test_nonsense_command_starts_nothing_and_names_its_mistakes(run_command, row):
    assert_explained(run_command, *row)


#: Wrong arguments, and parts of their messages.
WRONG = [
    *parse_rows(
        """
optimiser.lr=1.0 | optimiser.lr=1.0 | optimizer.lr=1.0
methods.mixup.alfa=0.2 | methods.mixup.alfa=0.2 | methods.mixup.alpha=0.2
methods.emma={} | methods.emma={} | 'methods.ema={}'
learning_rate=1 | unknown setting learning_rate=1; did you mean lr=1?
++optimizer.lr=1 | settings take no '+'
+foo=1 | unknown setting foo=1
methods.nothing={} | unknown method methods.nothing={}
bs=2,048 | bs=2,048 must be one value | bs=2048
~data.root | only a method or a setting of the optimizer can be removed
~methods.emma | unknown setting
hydra.run.dir=/tmp/x | Hydra itself cannot be configured
hydra/launcher=joblib | Hydra itself cannot be configured
+hydra.searchpath=[file:///x] | Hydra itself cannot be configured
optimizer._target_=os.system | unknown setting
data/backend=ffcv | unknown setting | data.backend=ffcv
optimizer@x=adam | unknown setting
lr=${oc.env:HOME} | references are only read from recipe files
lr | written key=value
lr= | lr= | is empty
lr=' | must be a number
epochs=1e9 | mild uses epochs=36
lr=nan | lr=nan | finite
lr=[1 | lr=[1 | cannot be read
lr=1:30 | lr=1:30 | must be a number
seed=010 | seed=010 | must be a whole number
epochs=-3 | epochs=-3 | must be a positive number of epochs | mild uses
max_duration=1.5ba | max_duration=1.5ba | a whole number of batches
max_duration=90 | max_duration=90 | must be a number and a unit
max_duration=0.5dur | must be given in ep or ba
ssr=0 | ssr=0 | must be above 0
data.flip=yes | data.flip=yes | true or false
methods.ema=true | methods.ema=true | must be a section of settings | methods.ema={}
run=../evil | run=../evil | must consist of letters
"""
    ),
    ("seed=" + "9" * 5000, "must be one line of at most 4,096"),
    ("x=\x1b[2J", "must be one line"),
]


def combine_arguments(wrong: list[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """Combine wrong arguments into as few commands as possible.

    A setting appears once per command, since its last value would win.
    """
    commands: list[dict[str, tuple[str, ...]]] = []
    for argument, *phrases in wrong:
        key = {"lr": "optimizer.lr", "epochs": "max_duration"}.get(
            argument.split("=")[0], argument.split("=")[0]
        )
        home = next((command for command in commands if key not in command), None)
        if home is None:
            commands.append(home := {})
        home[key] = (argument, *phrases)
    return [list(command.values()) for command in commands]


@pytest.mark.parametrize(
    "wrong", combine_arguments(WRONG), ids=lambda wrong: f"{len(wrong)} arguments"
)
def test_all_invalid_settings_are_reported_with_rules(capsys, wrong):
    assert cli.train(["recipe=mild", "data=/data", *(argument for argument, *_ in wrong)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    paragraphs = re.split(r"\n  (?=\S)", err)
    for argument, *phrases in wrong:
        assert any(all(part in paragraph for part in phrases) for paragraph in paragraphs), (
            argument,
            err,
        )
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "row",
    [
        *parse_rows(
            r"""
defaults: [mild]\noptimizer:\n  lrr: 1.7 | mine.yaml:3: unknown setting optimizer.lrr | optimizer.lr
defaults: [mild]\nseed: yes | recipes/mine.yaml:2 | true, false
defaults: [mild]\nseed: 0777 | recipes/mine.yaml:2
defaults: [mild]\noptimizer: 5 | recipes/mine.yaml | optimizer
defaults: [mildd] | recipes/mine.yaml:1 | did you mean mild?
defaults: [mine] | recipes/mine.yaml:1 | in a circle
defaults: [../../etc/passwd] | recipes/mine.yaml:1 | a list of recipe names
defaults: [_self_, mild] | recipes/mine.yaml:1 | must come last
defaults:\n  - override hydra/launcher: joblib | recipes/mine.yaml:2 | unknown setting
hydra:\n  callbacks: {x: {_target_: os.system}} | recipes/mine.yaml:1 | cannot configure Hydra
# @package _global_\nname: mine | recipes/mine.yaml:1 | instruction to Hydra
name: mine\nabout: ${oc.env:SECRET} | recipes/mine.yaml:2 | is not a reference to one setting
about: !!python/object/apply:os.system ['touch pwned'] | mine.yaml:1 | tags are not used
name: mine\nname: yours | recipes/mine.yaml:2 | duplicate key
name: [mine | recipes/mine.yaml | not YAML
"""
        ),
        (BOMB, "recipes/mine.yaml:1", "anchors"),
        ("", "recipes/mine.yaml:1", "a recipe consists of settings"),
    ],
)
def test_invalid_recipe_file_is_reported_with_line(run_command, row):
    text, *phrases = row
    Path("recipes/mine.yaml").write_text(text.replace("\\n", "\n"))
    assert_explained(run_command, "recipe=mine data=/data", *phrases)
    assert not Path("pwned").exists()

"""Recipe files, options and arguments are composed into one recipe."""

from operator import attrgetter
from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe import hydra_compose, overrides
from resnet_recipes.recipe.compose import compose, from_config
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.recipe.schema import get_enabled
from tests.shared.checks import get_error, get_problem, get_recipe_error
from tests.shared.tables import parse_rows, parse_values

DATA = "data=/data/imagenet"


@pytest.fixture
def write_recipe_file(tmp_path, monkeypatch):
    """Work in a folder with an empty ./recipes; return a function that writes a file there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_packaged_recipe_composes_as_it_is_written(write_recipe_file):
    composed = compose("mild", [DATA])
    assert composed.origin.entry.origin == "packaged"
    assert composed.recipe.optimizer.lr == 2.048
    assert list(get_enabled(composed.recipe.methods)) == [
        "blurpool",
        "bce_loss",
        "progressive_resizing",
        "label_smoothing",
        "ema",
    ]
    assert list(composed.origin.files) == [str(composed.origin.entry.path)]


#: An argument, the setting of Mild that it changes, and the new value.
OVERRIDES = parse_values(
    """
methods.ema.half_life=200ba | methods.ema.half_life | 200ba
data=s3://bucket/set/ | data.root | s3://bucket/set
methods.mixup.alpha=0.3 | methods.mixup.alpha | 0.3
methods.mixup={} | methods.mixup.alpha | 0.2
methods.mixup={alpha:0.4} | methods.mixup.alpha | 0.4
'~methods.ema' | methods.ema | null
methods.ema=null | methods.ema | null
methods.mixup=null | methods.mixup | null
lr=1e-3 | optimizer.lr | 0.001
lr=1 | optimizer.lr | 1.0
wd=0 | optimizer.weight_decay | 0.0
bs=1024 | batch.global_size | 1024
gpus=4 | launch.gpus | 4
gpus=auto | launch.gpus | auto
seed=7 | seed | 7
ssr=0.7 | scale_schedule_ratio | 0.7
epochs=18 | max_duration | 18ep
epochs=1e3 | max_duration | 1e3ep
epochs=18 | scale_schedule_ratio | 1.0
max_duration=500ba | max_duration | 500ba
workers=0 | data.workers | 0
model.num_classes=10 | model.num_classes | 10
run=123 | run.name | '123'
run='a+b' | run.name | a+b
optimizer.clip_norm=1 | optimizer.clip_norm | 1.0
optimizer.clip_norm=null | optimizer.clip_norm | null
data.crop_scale=[0.25,1] | data.crop_scale | [0.25, 1.0]
data.flip=false | data.flip | false
launch.max_wall=45m | launch.max_wall | 45m
launch.price=$32.77 | launch.price | 32.77
launch.price=$3/h | launch.price | 3.0
optimizer=lamb optimizer=lars | optimizer.name | lars
"""
)


@pytest.mark.parametrize(("argument", "where", "value"), OVERRIDES)
def test_every_form_of_override_changes_the_setting(write_recipe_file, argument, where, value):
    actual = attrgetter(where)(compose("mild", [DATA, *argument.split()]).recipe)
    assert (list(actual) if isinstance(actual, tuple) else actual) == value


def test_compose_makes_paths_absolute(write_recipe_file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert compose("mild", ["data=images"]).recipe.data.root == str(tmp_path / "images")
    assert compose("mild", ["data=~/images"]).recipe.data.root == "/home/someone/images"
    assert compose("mild", [DATA]).recipe.run.root == str(tmp_path / "runs")


def test_compose_records_short_names_in_full(write_recipe_file):
    origin = compose("mild", [DATA, "epochs=18", "~methods.ema"]).origin
    assert origin.arguments == (DATA, "epochs=18", "~methods.ema")
    assert list(origin.settings.values()) == [
        "data.root=/data/imagenet",
        "max_duration=18ep",
        "scale_schedule_ratio=1.0",
        "~methods.ema",
    ]


def test_origin_omits_arguments_that_later_arguments_replace(write_recipe_file):
    origin = compose("mild", [DATA, "epochs=5", "lr=1", "epochs=6"]).origin
    assert origin.arguments == (DATA, "lr=1", "epochs=6")


def test_user_recipe_shadows_packaged_one_with_a_note(write_recipe_file):
    write_recipe_file("recipes/mild.yaml", "name: mild\nseed: 5\n")
    composed = compose("mild", [DATA])
    assert composed.recipe.seed == 5
    assert composed.origin.entry.origin == "user"
    assert composed.origin.entry.shadows.name == "mild.yaml"


def test_user_recipe_inherits_from_packaged_one(write_recipe_file):
    write_recipe_file(
        "recipes/mine.yaml", "defaults: [hot]\noptimizer:\n  lr: 1.0\nmethods:\n  ema: null\n"
    )
    recipe = compose("mine", [DATA]).recipe
    hot = compose("hot", [DATA]).recipe
    assert (recipe.name, recipe.optimizer.lr, recipe.methods.ema) == ("mine", 1.0, None)
    assert recipe.optimizer.weight_decay == hot.optimizer.weight_decay == 3e-4
    assert recipe.methods.sam == hot.methods.sam
    assert hot.published
    assert recipe.published == []


def test_recipe_named_like_parent_inherits_packaged_recipe(write_recipe_file):
    write_recipe_file("recipes/hot.yaml", "defaults: [hot]\nseed: 5\n")
    recipe = compose("hot", [DATA]).recipe
    assert (recipe.seed, recipe.optimizer.weight_decay) == (5, 3e-4)


def test_recipe_inherits_through_several_files(write_recipe_file):
    write_recipe_file("recipes/one.yaml", "defaults: [mild]\nseed: 1\noptimizer: {lr: 1.0}\n")
    write_recipe_file("recipes/two.yaml", "defaults: [one, _self_]\nseed: 2\n")
    composed = compose("two", [DATA, "seed=3"])
    assert (composed.recipe.seed, composed.recipe.optimizer.lr) == (3, 1.0)
    assert [Path(path).stem for path in composed.origin.files] == ["mild", "one", "two"]


def test_recipe_can_be_named_by_its_path(write_recipe_file):
    path = write_recipe_file("other.yaml", "name: other\ndefaults: [mild]\n")
    for spelled in ("other.yaml", "./other.yaml", str(path)):
        assert compose(spelled, [DATA]).origin.entry.origin == "file"


def test_recipes_are_read_from_another_folder(write_recipe_file, tmp_path):
    (tmp_path / "mine").mkdir()
    write_recipe_file("mine/fast.yaml", "defaults: [mild]\nseed: 9\n")
    assert compose("fast", [DATA], folder=Path("mine")).recipe.seed == 9
    with pytest.raises(RecipeError, match="is not a folder"):
        compose("fast", [DATA], folder=Path("nowhere"))


def test_references_resolve_only_in_user_recipes(write_recipe_file):
    text = (
        "defaults: [mild]\nname: mine\nbatch: {bn_size: '${batch.eval_size}', eval_size: 128}\n"
        "optimizer: {momentum: '${optimizer.weight_decay}'}\n"
    )
    write_recipe_file("recipes/mine.yaml", text)
    recipe = compose("mine", [DATA, "wd=0.25"]).recipe
    assert (recipe.batch.bn_size, recipe.optimizer.momentum) == (128, 0.25)
    write_recipe_file("stranger.yaml", text)
    assert "only read from recipes in your own ./recipes folder" in str(
        get_recipe_error("stranger.yaml")
    )


def test_circular_inheritance_is_rejected(write_recipe_file):
    write_recipe_file("recipes/one.yaml", "defaults: [two]\n")
    write_recipe_file("recipes/two.yaml", "defaults: [one]\n")
    circle = "recipes/one.yaml -> recipes/two.yaml -> recipes/one.yaml"
    assert circle in str(get_recipe_error("one"))


def test_exponential_inheritance_is_rejected(write_recipe_file):
    for index in range(12):
        write_recipe_file(f"recipes/r{index}.yaml", f"defaults: [r{index + 1}, r{index + 1}]\n")
    write_recipe_file("recipes/r12.yaml", "name: r12\n")
    assert "may inherit from at most 7 files" in str(get_recipe_error("r0"))


def test_recipe_with_too_many_parents_is_rejected(write_recipe_file):
    parents = [f"a{number}" for number in range(8)]
    for name in parents:
        write_recipe_file(f"recipes/{name}.yaml", "lr: 1\n")
    write_recipe_file("recipes/mine.yaml", f"defaults: [{', '.join(parents)}]\n")
    assert "at most 7 files" in str(get_recipe_error("mine"))


def test_problem_from_command_line_has_no_file(write_recipe_file):
    write_recipe_file("recipes/mine.yaml", "defaults: [mild]\nmethods: {mixup: {alpha: 0.2}}\n")
    problem = get_problem(RecipeError, compose, "mine", [DATA, "methods.mixup={alpha: -1}"])
    assert (problem.key, problem.where) == ("methods.mixup.alpha", "")


def test_duration_conflicts_with_budget_of_recipe_file(write_recipe_file):
    write_recipe_file("recipes/mine.yaml", "defaults: [mild]\nlaunch:\n  budget: 2h\n")
    with pytest.raises(RecipeError) as caught:
        compose("mine", ["data=/d", "epochs=30"])
    text = "recipes/mine.yaml:3: launch.budget=2h: epochs=30 already sets the duration"
    assert str(caught.value.problems[0]).startswith(text)
    assert compose("mine", ["data=/d"]).recipe.launch.budget == "2h"


def test_all_problems_are_reported_with_their_lines(write_recipe_file):
    write_recipe_file(
        "recipes/mine.yaml",
        "defaults: [mild]\noptimizer:\n  lrr: 1.7\n  momentum: 1.5\nmethods:\n  mixup: "
        "{alhpa: 1}\n",
    )
    message = str(
        get_recipe_error("mine", "optimiser.lr=1", "bs=x", "methods.ema.half_life=banana", "lr=nan")
    )
    for part in (
        "recipes/mine.yaml:3: unknown setting optimizer.lrr",
        "recipes/mine.yaml:4: optimizer.momentum=1.5",
        "recipes/mine.yaml:6: unknown setting methods.mixup.alhpa",
        "did you mean alpha: 1?",
        "optimiser.lr=1",
        "optimizer.lr=1",
        "batch.global_size=x",
        "methods.ema.half_life=banana",
        "optimizer.lr=nan",
    ):
        assert part in message


def test_conflict_of_methods_is_reported_with_other_problems(write_recipe_file):
    write_recipe_file("recipes/mine.yaml", "lr: -1\nmethods:\n  mixup: {}\n  cutmix: {}\n")
    message = str(get_recipe_error("mine", DATA))
    assert "recipes/mine.yaml:1: optimizer.lr=-1 must be" in message
    assert "recipes/mine.yaml:3: methods.mixup cannot be combined with cutmix" in message
    assert "use:   cutmix: null" in message


def test_missing_data_is_reported_unless_none_is_needed(write_recipe_file):
    assert "data.root is missing" in str(get_error(RecipeError, compose, "mild"))
    assert compose("mild", needs_data=False).recipe.data.root == ""


def test_composing_runs_nothing_and_reads_no_environment(write_recipe_file, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    write_recipe_file("recipes/mine.yaml", "defaults: [mild]\nabout: '${oc.env:SECRET}'\n")
    message = str(get_recipe_error("mine"))
    assert "hunter2" not in message
    assert "is not a reference to one setting" in message


@pytest.mark.parametrize("reference", ["hydra.runtime.cwd", "hydra.job.name", "hydra"])
def test_reference_cannot_read_the_hydra_config(write_recipe_file, reference):
    write_recipe_file("recipes/mine.yaml", f"defaults: [mild]\nabout: ${{{reference}}}\n")
    assert "cannot be composed" in str(get_recipe_error("mine"))


def test_other_optimizer_rejects_settings_of_the_first():
    with pytest.raises(RecipeError, match=r"optimizer\.momentum=0\.875 is not a setting of lamb"):
        compose("mild", [DATA, "optimizer.name=lamb"])
    changed = compose(
        "mild", [DATA, "optimizer.name=lamb", "~optimizer.momentum", "lr=0.005", "wd=0.02"]
    ).recipe.optimizer
    assert (changed.name, changed.lr, changed.betas, changed.no_decay) == (
        "lamb",
        0.005,
        (0.9, 0.999),
        "one_dimensional",
    )


#: An option, and two recipes that use other options.
OPTIONS = parse_rows(
    """
optimizer=adamw | mild | timm_a2
optimizer=decoupled_sgdw | timm_a2 | nvidia_dle
optimizer=lamb | mild | nvidia_dle
optimizer=lars | mild | timm_a2
optimizer=sgd | mild | timm_a2
schedule=constant | mild | ffcv_rn50
schedule=cosine | ffcv_rn50 | nvidia_mlperf_pt
schedule=linear | mild | nvidia_mlperf_pt
schedule=polynomial | mild | ffcv_rn50
schedule=step | mild | ffcv_rn50
"""
)


@pytest.mark.parametrize(("option", "one", "other"), OPTIONS)
def test_selected_option_replaces_every_setting_of_recipe(option, one, other):
    arguments = [DATA, option, "lr=0.5", "schedule.warmup=3ep"]
    group, name = option.split("=")
    first, second = (getattr(compose(recipe, arguments).recipe, group) for recipe in (one, other))
    assert first == second
    assert name in ("step", first.name)  # the option `step` is a multistep schedule


@pytest.mark.parametrize(
    ("recipe", "typed", "setting", "value"),
    parse_rows(
        """
finetune | schedule=cosine | schedule.warmup | 0.1dur
finetune | schedule=step schedule=cosine | schedule.warmup | 0.1dur
finetune | optimizer=adamw | optimizer.lr | 0.01
pytorch_v1 | schedule=step | schedule.milestones | ['30ep', '60ep']
"""
    ),
)
def test_option_that_the_recipe_uses_keeps_its_settings(recipe, typed, setting, value):
    changed = compose(recipe, [DATA, *typed.split()]).recipe
    assert str(attrgetter(setting)(changed)) == value


@pytest.mark.parametrize(
    "spelled", ["optimizer: lamb", "override optimizer: lamb", "override /optimizer: lamb"]
)
def test_recipe_option_is_placed_between_parent_and_self(write_recipe_file, spelled):
    write_recipe_file(
        "recipes/mine.yaml", f"defaults: [hot, {spelled}, _self_]\noptimizer: {{lr: 0.25}}\n"
    )
    composed = compose("mine", [DATA])
    assert composed.recipe.optimizer.name == "lamb"
    assert composed.recipe.optimizer.lr == 0.25
    assert composed.recipe.optimizer.weight_decay == 0.02
    assert composed.recipe.methods.sam
    assert [Path(path).stem for path in composed.origin.files] == ["hot", "lamb", "mine"]


def test_child_recipe_overrides_choice_of_parent(write_recipe_file):
    write_recipe_file(
        "recipes/one.yaml", "defaults: [mild, optimizer: lamb]\noptimizer: {eps: 0.5}\n"
    )
    write_recipe_file(
        "recipes/two.yaml", "defaults: [one, optimizer: sgd]\noptimizer: {nesterov: true}\n"
    )
    optimizer = compose("two", [DATA]).recipe.optimizer
    assert (optimizer.name, optimizer.momentum, optimizer.nesterov) == ("sgd", 0.875, True)


def test_user_options_replace_packaged_ones(write_recipe_file, tmp_path):
    (tmp_path / "recipes/optimizer").mkdir()
    write_recipe_file("recipes/optimizer/lamb.yaml", "name: lamb\nlr: 0.125\n")
    write_recipe_file("recipes/optimizer/mine.yaml", "name: sgd\nmomentum: 0.5\n")
    composed = compose("mild", [DATA, "optimizer=lamb"])
    assert composed.recipe.optimizer.lr == 0.125
    assert str(tmp_path / "recipes/optimizer/lamb.yaml") in composed.origin.files
    assert compose("mild", [DATA, "optimizer=mine"]).recipe.optimizer.momentum == 0.5
    assert compose("timm_a2", [DATA, "optimizer=lamb"]).recipe.optimizer.lr == 0.125
    write_recipe_file("recipes/optimizer/lighter.yaml", "weight_decay: 0.25\n")
    lighter = compose("mild", [DATA, "optimizer=lighter"]).recipe.optimizer
    assert (lighter.name, lighter.weight_decay) == ("decoupled_sgdw", 0.25)


def test_unknown_recipe_option_lists_valid_ones(write_recipe_file):
    message = str(get_recipe_error("mild", "optimizer=lam", "schedule=multistep", "lr=x"))
    assert "unknown optimizer lam; did you mean lamb?" in message
    assert "valid: adamw, decoupled_sgdw, lamb, lars, sgd" in message
    assert "unknown schedule multistep" in message
    assert "unknown optimizer LAMB; did you mean lamb?" in str(
        get_recipe_error("mild", "optimizer=LAMB")
    )
    assert "optimizer.lr=x" in message
    write_recipe_file("recipes/mine.yaml", "name: mine\ndefaults: [mild, schedule: stepp]\n")
    message = str(get_recipe_error("mine"))
    assert "recipes/mine.yaml:2: unknown schedule stepp; did you mean step?" in message


def test_mistake_in_option_is_reported_with_its_line(write_recipe_file, tmp_path):
    (tmp_path / "recipes/optimizer").mkdir()
    option = "recipes/optimizer/mine.yaml"
    write_recipe_file(option, "name: lamb\nlr: -1\nmomentum: 0.5\nlrr: 1\n")
    message = str(get_recipe_error("mild", "optimizer=mine"))
    assert f"{option}:2: optimizer.lr=-1 must be positive" in message
    assert f"{option}:3: optimizer.momentum=0.5 is not a setting of lamb" in message
    assert "recipes/optimizer/mine.yaml:4: unknown setting optimizer.lrr" in message
    write_recipe_file(option, "defaults: [lamb]\nname: lamb\n")
    message = str(get_recipe_error("mild", "optimizer=mine"))
    assert f"{option}:1: defaults: only recipes inherit" in message
    write_recipe_file(option, "name: lamb\nlr: ${oc.env:HOME}\n")
    assert f"{option}:2" in str(get_recipe_error("mild", "optimizer=mine"))


@pytest.mark.parametrize(
    "listed",
    [
        "[hydra/launcher: evil]",
        "[optimizer@hydra.callbacks: sgd]",
        "[optimizer: ../../x]",
        "[optimizer: [sgd, lamb]]",
        "[methods: ema]",
        "[{optimizer: sgd, schedule: step}]",
        "[/optimizer/sgd]",
        "[hot@data]",
        "[optional hot]",
        "[override hydra/launcher: x]",
    ],
)
def test_defaults_accept_only_names_and_choices(write_recipe_file, listed):
    write_recipe_file("recipes/mine.yaml", f"name: mine\ndefaults: {listed}\n")
    assert "recipes/mine.yaml:2" in str(get_recipe_error("mine"))


def test_library_network_sets_defaults_from_its_name(write_recipe_file):
    arguments = ["model.name=torchvision:googlenet", "model.args.dropout=0.1", DATA]
    model = compose("small", [*arguments, "model.stem=standard", "model.width=1.0"]).recipe.model
    assert (model.init, model.bn_init, model.zero_init_last_bn) == ("library", "ones", False)
    assert model.args == {"aux_logits": False, "init_weights": True, "dropout": 0.1}
    assert compose("mild", ["model.name=torchvision:resnext50_32x4d", DATA]).recipe.model.init == (
        "kaiming_normal"
    )
    assert "model.init=library" in str(
        get_recipe_error("mild", "model.name=timm:x", "model.init=kaiming_normal")
    )


@pytest.mark.parametrize("below", ["", "defaults: [above]\nmodel: {init: kaiming_normal}\n"])
def test_library_network_with_other_initialization_suggests_init_library(write_recipe_file, below):
    initialization = "" if below else ", init: kaiming_normal"
    write_recipe_file(
        "recipes/above.yaml", f"defaults: [mild]\nmodel: {{name: 'timm:x'{initialization}}}\n"
    )
    write_recipe_file("recipes/below.yaml", below or "defaults: [above]\n")
    message = str(get_recipe_error("below"))
    assert "use:   init: library" in message
    assert "bn_init" not in message


def test_config_of_another_application_is_composed_or_rejected(write_recipe_file, tmp_path):
    tree = {"name": "mine", "optimizer": {"name": "lamb"}, "data": {"root": "images"}}
    recipe = from_config(tree)
    assert (recipe.optimizer.name, recipe.data.root) == ("lamb", str(tmp_path / "images"))
    error = get_error(RecipeError, from_config, tree | {"seed": "x", "sead": 1})
    assert "seed=x must be a whole number" in str(error)
    assert "did you mean seed?" in str(error)
    with pytest.raises(RecipeError, match="nothing"):
        from_config({"about": "${nothing}"})


def test_rejected_recipe_is_parsed_and_composed_once(write_recipe_file, monkeypatch):
    calls = []
    for module, name in ((overrides, "parse"), (hydra_compose, "compose_tree")):
        real = getattr(module, name)
        counted = Mock(side_effect=real)
        monkeypatch.setattr(module, name, counted)
        calls.append(counted)
    error = get_error(
        RecipeError, compose, "mild", [DATA, "lr=high", "batch_size=64", "methods.mixup=0.2"]
    )
    assert len(error.problems) == 3
    assert [counted.call_count for counted in calls] == [1, 1]


def test_recipe_of_copied_run_drops_name_and_folder(tmp_path):
    original = compose("mild", ["data=images", "run.root=/old", "run.name=mine"]).recipe
    (tmp_path / "config.yaml").write_text(freeze(original))
    copied = compose(str(tmp_path / "config.yaml"), [])
    assert (copied.recipe.run.name, copied.recipe.run.root) == (
        "auto",
        str(Path("runs").absolute()),
    )
    changed = compose(str(tmp_path / "config.yaml"), ["run.root=/new"])
    assert changed.recipe.run.root == "/new"


def test_method_that_weights_enable_can_be_removed():
    arguments = [DATA, "model.weights=hf:someone/network"]
    assert compose("finetune", [*arguments, "~methods.blurpool"]).recipe.methods.blurpool is None
    problem = get_problem(RecipeError, compose, "finetune", [*arguments, "~methods.mixup"])
    assert problem.advice == ("finetune uses no methods",)


def test_argument_removes_method_of_earlier_argument():
    changes = [DATA, "methods.cutmix.alpha=1", "~methods.cutmix"]
    assert compose("demo", changes).recipe.methods.cutmix is None


def test_origin_has_batch_size_beside_a_referenced_lr(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [mild]\noptimizer: {lr: '${seed}'}\n")
    origin = compose("mine", [DATA], tmp_path).origin
    assert (origin.batch_size, origin.lr) == (2048, 0)

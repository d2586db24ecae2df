"""The commands `ls`, `show`, `cp`, `diff`, `validate` and `convert`."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from resnet_recipes.commands.show import fold
from resnet_recipes.recipe.library import find_packaged_folder
from tests.fixtures import Streams


@pytest.fixture
def run_subcommand(run_command: Callable[..., Streams]) -> Callable[..., str]:
    return lambda line: run_command(f"resnet-recipes {line}").out


@pytest.fixture
def recipes() -> Path:
    """An empty folder for the user's recipes."""
    Path("recipes").mkdir()
    return Path("recipes")


def test_ls_lists_packaged_and_own_recipes(run_subcommand, recipes):
    (recipes / "mine.yaml").write_text("defaults: [hot]\nmax_duration: 10ep\n")
    (recipes / "mild.yaml").write_text("name: mild\n")
    (recipes / "broken.yaml").write_text("seed: yes\n")
    (recipes / "orphan.yaml").write_text("defaults: [nope]\n")
    out = run_subcommand("ls")
    rows = {
        line.split()[0]: " ".join(line.split())
        for line in re.sub(r"\n +", " ", out).splitlines()
        if line
    }
    assert "based on hot" in rows["mine"]
    assert rows["mine"].split()[1] == "30"
    assert "cannot be read: recipes/broken.yaml:1: seed: yes is read differently" in rows["broken"]
    assert "cannot be read: recipes/orphan.yaml:1: unknown recipe nope" in rows["orphan"]
    assert rows["mine"].endswith("(recipes/mine.yaml)")
    assert rows["orphan"].count("recipes/orphan.yaml") == 1
    assert "recipes/mild.yaml, hides the packaged recipe of the same name" in rows["mild"]
    assert max(map(len, out.splitlines())) <= 80


def test_ls_shows_nearest_published_result_of_own_recipe(run_subcommand, recipes):
    (recipes / "mine.yaml").write_text(
        "defaults: [hot]\nmax_duration: 10ep\nscale_schedule_ratio: 1\n"
        "published: [{top1: 70, epochs: 90}, {top1: 60, epochs: 9}, {top1: 50}]\n"
    )
    out = run_subcommand("ls")
    assert "60%, 9 epochs" in out
    ours = out.partition("BASELINES")[0]
    assert "25.3 min," in ours
    assert "23.8 min*," in out
    assert "* time as defined by DAWNBench or MLPerf; other times are training time." in out


def test_ls_survives_hostile_recipe_descriptions(run_subcommand, recipes):
    (recipes / "odd.yaml").write_text(
        'about: "\\x1b[2J"\nmax_duration: [1]\npublished: [{top1: [1], minutes: x}]\n'
    )
    (recipes / "odder.yaml").write_text(
        "about: {a: 1}\nscale_schedule_ratio: many\nmax_duration: 3ep\npublished: 7\n"
    )
    out = run_subcommand("ls")
    assert "\x1b" not in out
    assert {"odd", "odder"} <= {line.split()[0] for line in out.splitlines() if line}


def test_ls_json_has_the_columns_of_the_table(run_subcommand):
    recipes = {item["name"]: item for item in json.loads(run_subcommand("ls --json"))}
    assert recipes["mild"]["epochs"] == "36"
    assert recipes["hot"]["published"]["top1"] == 79.86
    assert [recipes[name]["published"]["clock"] for name in ("hot", "mild_mlperf")] == [
        "",
        "MLPerf",
    ]


def test_show_prints_the_file_with_its_sources(run_subcommand):
    out = run_subcommand("show mild")
    assert (Path(__file__).parents[2] / "recipes/mild.yaml").read_text().strip() in out
    assert "# sha256 " in out


@pytest.mark.parametrize("name", ["hot", "timm_a2", "pytorch_v2", "ffcv_rn50"])
def test_printed_recipe_is_folded_but_equivalent(name):
    text = (find_packaged_folder() / f"{name}.yaml").read_text()
    folded = "\n".join(fold(line, 80) for line in text.splitlines())
    assert max(map(len, folded.splitlines())) <= 80
    assert yaml.safe_load(folded) == yaml.safe_load(text)
    assert sorted(set(text.split()) - set(folded.split())) == []


def test_cp_writes_a_child_that_composes(run_subcommand, recipes):
    assert "\nhint:  resnet-train mine data=PATH " in run_subcommand("cp hot recipes/mine.yaml")
    assert "defaults: [hot]" in (recipes / "mine.yaml").read_text()
    run_subcommand("cp recipes/mine.yaml recipes/other.yaml")
    assert "defaults: [mine]" in (recipes / "other.yaml").read_text()
    assert all(f"{name}.yaml: ok" in run_subcommand("validate") for name in ("mine", "other"))
    assert run_subcommand("diff hot other") == "no setting differs\n"


def test_show_prints_parents_before_a_recipe(run_subcommand, recipes):
    (recipes / "child.yaml").write_text("name: child\ndefaults: [mild, optimizer: lamb]\n")
    output = run_subcommand("show child")
    assert output.index("# mild: ") < output.index("# lamb: ") < output.index("# child: ")


def test_cp_rejects_parent_outside_recipes(run_command, recipes):
    Path("mine.yaml").write_text("name: mine\ndefaults: [mild]\n")
    message = run_command("resnet-recipes cp mine.yaml recipes/other.yaml", 2).err
    assert "hint:  move it to recipes/mine.yaml" in message
    assert not (recipes / "other.yaml").exists()


def test_cp_to_name_of_parent_is_valid(run_command, run_subcommand):
    message = run_command("resnet-recipes cp hot recipes/hot.yaml").err
    assert message == "note: it hides the packaged recipe hot\n"
    assert run_command("resnet-recipes cp mild recipes/mine.yaml").err == ""
    assert "hot.yaml: ok" in run_subcommand("validate recipes/hot.yaml")


def test_cp_rejects_an_existing_file(run_command):
    Path("a.yaml").write_text("mine")
    run_command("resnet-recipes cp hot a.yaml", 2)
    assert Path("a.yaml").read_text() == "mine"


def test_diff_shows_only_differences(run_subcommand):
    out = run_subcommand("diff mild medium")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["methods.label_smoothing.smoothing"] == ["0.08", "0.1"]
    assert rows["methods.sam.interval"] == ["-", "10"]
    assert "optimizer.lr" not in rows


def test_validate_reports_a_missing_file_like_other_commands(run_command):
    assert run_command("resnet-recipes validate nope.yaml", 2).err.startswith(
        "error: `nope.yaml` does not exist\n"
    )


def test_validate_suggests_only_a_similar_file(run_command, recipes):
    (recipes / "other.yaml").write_text("defaults: [mild]\n")
    assert "try:   resnet-recipes validate recipes/other.yaml\n" in (
        run_command("resnet-recipes validate recipes/othr.yaml", 2).err
    )
    assert "try:" not in run_command("resnet-recipes validate recipes/nope.yaml", 2).err


def test_validate_reports_the_problems_of_all_files(run_command):
    Path("good.yaml").write_text("name: good\ndefaults: [mild]\n")
    Path("bad.yaml").write_text("name: bad\noptimizer:\n  lrr: 1\n")
    out, err = run_command("resnet-recipes validate nope.yaml bad.yaml good.yaml", 2)
    assert out == "good.yaml: ok\n"
    assert err.startswith("error: 2 problems")
    assert "`nope.yaml` does not exist" in err
    assert "bad.yaml:3: unknown setting optimizer.lrr" in err


_MISTAKES = """\
defaults: [milld, optimizer: lam]
epochs: many
lr: -1
lr: 0.1
batch: {global_size: lots}
methods: {ema: off, mixap: {}}
"""


@pytest.mark.parametrize(
    "command",
    ["recipes validate", "recipes diff mine mild", "train mine", "train ./recipes/mine.yaml"],
)
def test_mistakes_of_a_file_are_reported_at_once(command, run_command, recipes):
    (recipes / "mine.yaml").write_text(_MISTAKES)
    lines = run_command(f"resnet-{command}", 2).err.splitlines()
    expected = (
        "1: unknown optimizer lam; did you mean lamb?",
        "1: unknown recipe milld; did you mean mild?",
        "2: epochs: many must be",
        "3: optimizer.lr=-1 must be",
        "4: lr is a duplicate key",
        "5: batch.global_size=lots must be",
        "6: ema: off is read differently",
        "6: unknown setting methods.mixap; did you mean methods.mixup?",
    )
    first = [line.partition("mine.yaml:")[2] for line in lines if "mine.yaml:" in line]
    assert all(one.startswith(text) for one, text in zip(sorted(first), expected, strict=True))


@pytest.mark.parametrize(
    ("text", "wrong", "advice"),
    [
        ("defaults: mild", "1: defaults=mild must be a list", "use:   defaults: [mild]"),
        ("optimizer: adam", "1: optimizer=adam must be", "use:   optimizer: {name: adamw}"),
        ("epochs: 30 epochs", "1: epochs: 30 epochs must be", "use:   epochs: 30ep"),
        ("epochs: 2h", "1: epochs: 2h must be", "use:   budget: 2h"),
        ("lr: '1,0'", "1: optimizer.lr=1,0 must be", "hint:  the inherited value is 2.048"),
        ("methods.ema.half_life: 1ep", "1: unknown", "hint:  methods: {ema: {half_life: ...}}"),
        ("model: {name: resnet51}", "1: model.name=resnet51 is not", "use:   name: resnet50"),
        ("launch: {budget: 2}", "1: launch.budget=2 must be a time", "use:   budget: 2m"),
        ("run: 5", "1: run.name=5 must be text", "use:   run: {name: '5'}"),
        ("name: My", "1: name=My must", "hint:  without it, the name is that of the file"),
    ],
)
def test_mistake_of_a_file_suggests_a_line(text, wrong, advice, run_command, recipes):
    (recipes / "mine.yaml").write_text(f"{text}\nbs: many\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert f"recipes/mine.yaml:{wrong}" in err
    assert f"\n      {advice}\n" in err
    assert "mine.yaml:2: batch.global_size=many must be" in err
    assert "mine.yaml:3: seed: yes is read" in err


def test_broken_reference_is_reported_in_one_line(run_command, recipes):
    (recipes / "mine.yaml").write_text("lr: ${optimizer.wd}\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert "mine.yaml cannot be composed: Interpolation key 'optimizer.wd' not found\n" in err
    assert "mine.yaml:2: seed: yes is read" in err


def test_unknown_parent_does_not_hide_other_mistakes(run_command, recipes):
    (recipes / "mine.yaml").write_text("defaults: [gone]\nepochs: many\nseed: yes\n")
    err = run_command("resnet-recipes validate", 2).err
    assert [f"mine.yaml:{line}: " in err for line in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize("command", ["show nope", "job"])
def test_valid_recipes_omit_unreadable_ones(command, run_command, recipes):
    (recipes / "mine.yaml").write_text("defaults: [mild]\nseed: 1\n")
    (recipes / "broken.yaml").write_text("name: [")
    (recipes / "orphan.yaml").write_text("defaults: [gone]\n")
    valid = run_command(f"resnet-recipes {command}", 2).err.partition("valid: ")[2]
    assert ", mine, " in valid
    assert "broken" not in valid
    assert "broken.yaml:2 is not YAML" in run_command("resnet-recipes show broken", 2).err


def test_validate_of_a_folder_suggests_a_command(run_command):
    Path("my recipes").mkdir()
    Path("my recipes/good.yaml").write_text("name: good\ndefaults: [mild]\n")
    error = run_command("resnet-recipes validate 'my recipes'", 2).err
    command = "resnet-recipes validate --recipes 'my recipes'"
    assert f"try:   {command}\n" in error
    assert run_command(command).out == "my recipes/good.yaml: ok\n"


_DURATION = "defaults: [mild]\nmax_duration: {}\nschedule: {{warmup: {}}}\n"
_TRANSFORMER = """\
defaults: [mild]
model: {name: torchvision:vit_b_16}
data: {train_size: 224, eval_size: 224}
methods: {progressive_resizing: null}
"""


@pytest.mark.parametrize(
    ("recipe", "section", "line"),
    [
        ("defaults: [mild]\nepochs: 3\n", "", "schedule: {warmup: 0.1dur}"),
        (_DURATION.format("50000ba", "60000ba"), "schedule: {", "warmup: 0.1dur"),
        (_TRANSFORMER, "methods: {", "blurpool: null"),
    ],
)
def test_validate_suggests_lines_for_conflicts(recipe, section, line, run_command, recipes):
    (recipes / "mine.yaml").write_text(recipe)
    error = run_command("resnet-recipes validate", 2).err
    assert error.startswith("error: recipes/mine.yaml:")
    assert f"use:   {line}\n" in error
    fixed = re.sub(r"warmup: \w+", "", recipe)
    fixed = fixed.replace(section, f"{section}{line}, ") if section else recipe + line
    (recipes / "mine.yaml").write_text(fixed.replace(", }", "}"))
    assert run_command("resnet-recipes validate").out == "recipes/mine.yaml: ok\n"


@pytest.mark.parametrize(
    "recipe",
    [
        _DURATION.format("3ep", "5000ba"),  # possible with many images
        _DURATION.format("5000ba", "9ep"),  # possible with few images
        "defaults: [mild]\ndata: {order: quasi_random}\nmodel: {num_classes: 7}\n",
    ],
)
def test_validate_accepts_recipe_that_some_datasets_fit(recipe, run_subcommand, recipes):
    (recipes / "mine.yaml").write_text(recipe)
    assert run_subcommand("validate") == "recipes/mine.yaml: ok\n"


def test_validate_lists_a_folder_once(run_subcommand, recipes, monkeypatch):
    for number in range(20):
        (recipes / f"mine{number}.yaml").write_text("defaults: [small]\nseed: 1\n")
    listed, glob = [], Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, form: listed.append(path) or glob(path, form))
    assert run_subcommand("validate").count("yaml: ok") == 20
    assert listed.count(recipes.absolute()) == 1


def test_optimizer_page_explains_how_to_select_it(run_subcommand):
    out = run_subcommand("methods lamb")
    parts = "arXiv:1904.00962 optimizer.name=lamb optimizer.betas=[0.9,0.999] optimizer.lr=0.005"
    assert all(part in out for part in parts.split())


def test_methods_suggests_method_after_another_word(run_command):
    message = run_command("resnet-recipes methods show mixup", 2).err
    assert (
        message
        == "error: unknown method show\n      try:   resnet-recipes methods mixup\n\n[exit 2]\n"
    )


def test_convert_makes_a_beton_and_prints_its_name(run_subcommand, image_folder):
    assert (
        run_subcommand(f"convert {image_folder}/val images.beton workers=1 write_mode=raw")
        == "images.beton\n"
    )
    assert Path("images.beton").stat().st_size > 30 * 40 * 48 * 3


def test_convert_dry_run_only_forecasts(run_command, image_folder):
    out, err = run_command(f"resnet-recipes convert {image_folder}/val images.beton --dry-run")
    assert out == ""
    assert err.startswith("30 images to images.beton: about ")
    assert err.endswith(" free, under a second (measured on 30)\n")
    assert not Path("images.beton").exists()


def test_repeated_conversion_is_already_done(run_command, image_folder):
    command = f"resnet-recipes convert {image_folder} 'my out' workers=1"
    first = run_command(command)
    before = Path("my out/val.beton").stat().st_mtime_ns
    assert run_command(command) == (first.out, "already converted: my out\n")
    assert Path("my out/val.beton").stat().st_mtime_ns == before
    message = run_command(f"{command} seed=1", 2).err
    assert "`my out` already exists, and nothing is overwritten" in message
    assert f"try:   {command} seed=1\n".replace("out'", "out2'") in message
    with Path("my out/val.beton").open("ab") as file:
        file.write(b"damage")
    assert "already exists" in run_command(command, 2).err


def test_convert_rejects_folder_with_other_files(run_command, image_folder):
    convert = "resnet-recipes convert"
    run_command(f"{convert} {image_folder} betons workers=1")
    Path("mine/train").mkdir(parents=True)
    message = run_command(f"{convert} betons mine workers=1", 2).err
    assert "`mine` already exists, and nothing is overwritten" in message
    assert f"try:   {convert} betons mine2 workers=1\n" in message
    assert [path.name for path in Path("mine").iterdir()] == ["train"]
    Path("mine/train").rename("mine/.train")
    run_command(f"{convert} betons mine workers=1")


def test_convert_to_a_virtual_folder_is_not_ready(run_command, image_folder):
    message = run_command(f"resnet-recipes convert {image_folder} /proc/betons", 3).err
    assert "`/proc/betons` cannot be written to: /proc is not on a disk" in message
    assert "try:" not in message


@pytest.mark.parametrize("target", ["out", "old.beton"])
def test_suggested_convert_command_keeps_its_options(target, run_command, image_folder):
    Path("old.beton").write_text("mine")
    line = (
        f"resnet-recipes convert {image_folder}/val {target} max_resolution=64 workers=1 --dry-run"
    )
    message = run_command(line, 2).err
    (fix,) = (text[13:] for text in message.splitlines() if "resnet-recipes convert" in text)
    assert fix == line.replace(" out", " out/val.beton").replace("old", "old2")
    run_command(fix)


def test_convert_takes_paths_with_an_equals_sign(run_subcommand, run_command, image_folder):
    Path("split=train").symlink_to(image_folder / "val")
    arguments = "convert ./split=train ./run=1/a.beton workers=1"
    Path("run=1").mkdir()
    assert run_subcommand(arguments) == "run=1/a.beton\n"
    assert (
        "did you mean shuffle=true?"
        in run_command(f"resnet-recipes {arguments} shufle=true", 2).err
    )

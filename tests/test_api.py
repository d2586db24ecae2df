"""The examples in the library page work, and methods of other packages can be installed."""

import ast
import re
import signal
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn

import resnet_recipes
from resnet_recipes.api import RunResult
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.commands.methods import format_example
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.base import HOOKS
from resnet_recipes.network import about
from resnet_recipes.network.weights import write_weights
from resnet_recipes.run_folder.ending import Ending, read_ending
from resnet_recipes.run_folder.lock import LockedFolder
from tests.shared.checks import is_identical
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_folder_with_weights
from tests.shared.tables import parse_rows
from tests.shared.tiny_networks import build_shallow_resnet18

README = Path(__file__).parents[1] / "README.md"
PAGES = [README.parent / "docs" / page for page in ("library.md", "howto/own_loop.md")]

#: Settings for a run on few images.
SMALL = ("batch.global_size=4", "batch.bn_size=4", "batch.eval_size=4", "data.workers=0")

#: The same in Python code.
QUOTED = ", ".join(f'"{setting}"' for setting in SMALL)

#: A method of another package that makes images darker.
DARKEN = '''
from collections.abc import Iterator
from dataclasses import dataclass
from resnet_recipes.base.errors import Problem
from resnet_recipes.methods import Batch, Method, Now

@dataclass
class Darken(Method):
    """Make every image darker (Nobody, 2020, arXiv:0000.00000)."""

    name = "darken"
    cost = "one multiplication."
    gain = "none known."
    avoid_when = "The images are dark."
    factor: float = 0.5                 # factor on the brightness, above 0

    def problems(self) -> Iterator[Problem]:
        if not self.factor > 0:
            yield Problem("factor", self.factor, "must be positive")

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        return batch._replace(images=batch.images * self.factor)
'''


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `images` in the current folder: two classes, 32 training and 4 other images."""
    monkeypatch.chdir(tmp_path)
    return create_random_images(tmp_path / "images", ("cat", "dog"), train=16, val=2)


def test_notebook_completes_only_public_names():
    assert [name for name in dir(resnet_recipes) if name != "__version__"] == sorted(
        resnet_recipes.__all__
    )


def test_package_stub_lists_every_public_name():
    stub = ast.parse(Path(resnet_recipes.__file__).with_suffix(".pyi").read_text())
    imported = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname for node in imported for alias in node.names}
    assert names == {*resnet_recipes.__all__}


@pytest.mark.slow
def test_examples_of_pages_run_in_order(images, monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    pages = "".join(page.read_text() for page in PAGES)
    examples = re.findall(r"```python\n(.*?)```", pages, re.DOTALL)
    assert len(examples) == 6
    names = {"step": 3, "images": torch.randn(4, 3, 32, 32), "labels": torch.arange(4)}
    for example in examples:
        small = example.replace('data="data/demo"', f'{QUOTED}, data="images"')
        small = small.replace("data/demo", "images").replace("plain_disc/0000.jpg", "cat/0.jpg")
        small = small.replace("workers=2", "workers=0")
        if "rr.load" not in small and "mixup" in small:
            names["model"] = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3, 10))
        exec(small, names)
    assert len(names["losses"]) > 5
    assert names["result"].metrics.examples == 4
    assert [name for name, _ in names["prediction"].classes]


def test_compose_accepts_mappings_of_settings():
    recipe = resnet_recipes.compose(
        "small",
        {"optimizer.lr": 0.1, "data.flip": False},
        methods={"mixup": {"alpha": 0.3}, "cutmix": {}},
        evaluation={"sizes": [32, 48], "stop_at_top1": None},
        data=Path("/images"),
    )
    assert (recipe.optimizer.lr, recipe.data.flip, recipe.data.root) == (0.1, False, "/images")
    assert (recipe.methods.mixup.alpha, recipe.methods.cutmix.alpha) == (0.3, 1.0)
    assert (recipe.evaluation.sizes, recipe.evaluation.stop_at_top1) == ([32, 48], None)


#: Calls with wrong types or a wrong order of arguments, and the expected messages.
MISUSED = """
rr.compose("small", ["lr=0.1"]) | changes must be text or a mapping, not a list
rr.compose("small", 5, None) | not 5(.|\\n)*mapping, not None
rr.compose(recipe, lr=0.1) | recipe is already a recipe
rr.compose({"name": "x"}, lr=0.1) | recipe is a complete config
rr.compose(None) | recipe is not the name of a recipe, but None
rr.compose(Path("none.yaml")) | recipe=none.yaml does not exist
rr.compose("small", optimizer=rr.optim.LAMB()) | optimizer cannot be a LAMB here
rr.plan("small") | must be a result of compose.., not 'small'\n    use:   compose."small"
rr.plan(recipe, 0) | ranks=0 must be a whole number
rr.plan(recipe, "2") | ranks=2 must be a whole number
rr.plan(recipe, print) | ranks=.* must be a whole number
rr.estimate("small") | recipe must be a result
rr.prepare("small") | recipe must be a result
rr.prepare(recipe, "out") | planned must be a plan, not 'out'
rr.teach("small") | recipe must be a result
rr.train("small") | recipe must be a result
rr.train(print, recipe) | , not a builtin_function_or_method
rr.train(recipe, print, 5) | callbacks: 5 does not take one record
rr.train(recipe, [print]) | callbacks: a list does not take one record
rr.train(recipe, lambda: 1) | a function does not take one record: too many
rr.train(recipe, lambda record, step: 1) | missing a required argument: 'step'
rr.train(several) | launch.gpus=2: train.. uses one device
rr.load(None) | place must name a run, .*, not None
rr.load(recipe) | , not a Recipe
rr.load("last") | there are no runs in ./runs yet
rr.load("nope") | place=nope does not exist
rr.evaluate(recipe) | , not a Recipe
rr.evaluate("nope") | place=nope does not exist
rr.predict("nope", ".") | has no images
rr.predict("nope", 5) | images.0. is of type int, not an image
rr.predict("nope", [np.zeros((4, 4, 3))]) | float64 .4, 4, 3.; an image is uint8
rr.predict("nope", [torch.zeros(3, 8, 9)]) | float32 .3, 8, 9.; an image is .* or a tensor .3, h
rr.data.survey_images("images") | config must be a DataConfig, not 'images'
setattr(recipe, "lr", 0.1) | unknown setting lr=0.1; did you mean optimizer.lr
"""


@pytest.mark.parametrize(("call", "message"), parse_rows(MISUSED.replace("\n    ", "\\n    ")))
def test_misused_function_raises_one_message(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("data.backend=synthetic", "schedule.warmup=0ep")
    names = {"rr": resnet_recipes, "Path": Path, "np": np, "torch": torch}
    names["recipe"] = resnet_recipes.compose("small", *arguments)
    names["several"] = resnet_recipes.compose("small", *arguments, gpus=2)
    with pytest.raises(resnet_recipes.RecipeError, match=message):
        eval(call, names)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run_here(make_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run with weights: runs/mine in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    return create_folder_with_weights(make_run, Path("runs/mine"))


def test_load_accepts_command_line_arguments(run_here):
    images = torch.randn(2, 3, 32, 32)
    expected = resnet_recipes.load(run_here)(images)
    for network in (
        "last",
        "mine",
        "runs/mine",
        RunResult(run_here, ""),
        run_here / "weights.safetensors",
    ):
        assert torch.equal(resnet_recipes.load(network)(images), expected)
    assert resnet_recipes.evaluate("last", workers=0).metrics.examples == 30


#: An image of the run that `run_here` returns.
IMAGE = Path("runs/images/val/pattern3/1.jpg")


def test_predict_takes_images_in_memory(run_here):
    network = resnet_recipes.load(run_here)
    path = IMAGE.absolute()
    pixels = np.asarray(Image.open(path))
    with torch.no_grad():
        logits = network(network.transform(pixels)[None])
    shares = dict(zip(network.classes, logits.softmax(1)[0].tolist(), strict=True))
    images = [path, pixels, Image.open(path), path.read_bytes(), Path("runs/images/val/pattern0")]
    results = list(resnet_recipes.predict(network, images, workers=0))
    names = [str(path), "image 1", "image 2", "image 3"]
    assert [prediction.file for prediction in results[:4]] == names
    assert len(results) == 7
    for prediction in results[:4]:
        assert dict(prediction.classes) == pytest.approx(
            {name: shares[name] for name, _ in prediction.classes}, abs=2e-3
        )
    assert results[4].classes != results[1].classes


def test_predict_yields_each_image_of_a_batch(run_here):
    pixels = np.asarray(Image.open(IMAGE))
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    for images, count in ((pixels, 1), (np.stack([pixels] * 3), 3), (tensor[None], 1), ([], 0)):
        assert len(list(resnet_recipes.predict("last", images, workers=0))) == count


def test_predict_and_evaluate_leave_network_unchanged(run_here):
    network = resnet_recipes.load(run_here).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert len(list(resnet_recipes.predict(network, IMAGE, workers=0))) == 1
    result = resnet_recipes.evaluate(network, data="runs/images", workers=0)
    assert result.metrics == resnet_recipes.evaluate(run_here, workers=0).metrics
    assert network.training
    assert is_identical(network.state_dict(), before)


def test_plan_needs_no_images_but_prepare_does(images):
    recipe = resnet_recipes.compose("mild")
    assert resnet_recipes.plan(recipe, ranks=2).facts.train_examples > 1_000_000
    with pytest.raises(resnet_recipes.RecipeError, match=r"data\.root"):
        resnet_recipes.prepare(recipe)
    small = resnet_recipes.compose("demo", *SMALL, "schedule.warmup=1ba", data="images")
    folder = resnet_recipes.prepare(small)
    assert (folder / "command.txt").read_text() == "python\n"
    # a long temporary path wraps the line
    assert "32 for training" in " ".join((folder / "plan.txt").read_text().split())


def test_prepare_records_settings_changed_by_a_program(images):
    changes = (
        "~methods.ema",
        "optimizer=lamb",
        "optimizer.betas=[0.8,0.9]",
        "data.crop_scale=[0.5,1.0]",
    )
    recipe = resnet_recipes.compose("demo", *SMALL, *changes, data="images")
    recipe.seed = 5
    settings = (resnet_recipes.prepare(recipe) / "overrides.txt").read_text().splitlines()
    assert {"seed=5", f"data.root={Path('images').absolute()}", "~methods.ema"} <= {*settings}
    assert not any(setting.startswith("model.init") for setting in settings)
    assert resnet_recipes.compose("demo", *settings) == recipe


def test_prepare_records_no_settings_of_an_unknown_recipe(images):
    recipe = resnet_recipes.compose("demo", *SMALL, data="images")
    recipe.name = "unknown"
    assert not (resnet_recipes.prepare(recipe) / "overrides.txt").read_text()


def test_prepare_rejects_unreadable_validation_images(images):
    recipe = resnet_recipes.compose("demo", *SMALL, "schedule.warmup=1ba", data="images")
    next(Path("images/val").rglob("*.jpg")).write_bytes(b"no image")
    with pytest.raises(resnet_recipes.RecipeError, match="unreadable images in val: 1, "):
        resnet_recipes.prepare(recipe)
    assert not Path("runs").exists()


def test_readme_python_example_runs(images, monkeypatch):
    """Uses the demo recipe with little work; the figures are not checked."""
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    arguments = f'"demo", {QUOTED}, "epochs=1", "schedule.warmup=1ba", data="images"'
    documented = '"finetune", pretrained, data="ants-bees", epochs=5, seed=1'
    assert documented in example
    exec(example.replace(documented, arguments), names)
    assert names["network"](torch.zeros(1, 3, 64, 64)).shape == (1, 2)
    assert read_ending(names["run"].folder / "exit.json").code == 0


@pytest.fixture
def train_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    monkeypatch.setattr("resnet_recipes.api._create", lambda recipe: LockedFolder(tmp_path))
    recipe = resnet_recipes.compose("mild", "data.backend=synthetic")

    def train(work: Callable[[RankProcess], int], *callbacks: Callable) -> object:
        monkeypatch.setattr("resnet_recipes.jobs.train.run_task", work)
        return resnet_recipes.train(recipe, *callbacks)

    return train


def test_stopped_or_failed_run_reports_it(tmp_path, train_here):
    train_here(lambda process: 75)
    assert read_ending(tmp_path / "exit.json").code == 75
    with pytest.raises(TrainingError):
        train_here(Mock(side_effect=TrainingError("the loss is not a number")))
    assert read_ending(tmp_path / "exit.json").message == "the loss is not a number"


def test_stopped_run_has_reason_and_no_summary(train_here):
    def record(process: RankProcess) -> int:
        process.on_record({"kind": "step"})
        return process.interruption.exit_code if process.interruption.is_requested() else 0

    run = train_here(record, lambda record: True)
    assert run.stopped == "a callback asked for it"
    with pytest.raises(resnet_recipes.RecipeError, match="was stopped"):
        print(run.summary)
    finished = train_here(record)
    assert finished.stopped == ""
    with pytest.raises(resnet_recipes.RecipeError, match="No such file"):  # as after a full disk
        print(finished.summary)


#: A program that stores teacher outputs for a folder of images.
TEACH = """
import resnet_recipes
from resnet_recipes.methods import Distill
recipe = resnet_recipes.compose("demo", {arguments}, epochs=2)
recipe.methods.distill = Distill(teacher="teacher.safetensors")
print(resnet_recipes.teach(recipe, "said", cycle=1))
"""


def test_teach_stores_outputs_that_a_run_uses(images, tmp_path, monkeypatch, forks):
    arguments = [*SMALL, "model.name=resnet18", "schedule.warmup=1ep"]
    arguments += ["data=images", "data.train_size=32"]
    recipe = resnet_recipes.compose("demo", *arguments, epochs=2)
    described = about.describe(recipe, ("cat", "dog"), 2)
    write_weights(build_shallow_resnet18(2), tmp_path / "teacher.safetensors", described)
    recipe.methods.distill = resnet_recipes.methods.Distill(teacher="teacher.safetensors")
    for mistake in ({"top": 0}, {"top": "ten"}, {"cycle": -1}):
        with pytest.raises(resnet_recipes.RecipeError, match="must be a whole number from"):
            resnet_recipes.teach(recipe, **mistake)
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)  # as in the program
    monkeypatch.setattr("resnet_recipes.jobs.ranks.launcher.start", lambda *_: Ending(75))
    with pytest.raises(TrainingError, match="the same command continues") as stopped:
        resnet_recipes.teach(recipe, "stopped", cycle=1)
    assert stopped.value.exit_code == 75
    Path("program.py").write_text(TEACH.format(arguments=", ".join(map(repr, arguments))))
    code, out, err = forks.run(tmp_path, "program").wait()
    assert (code, out) == (0, f"{tmp_path}/said.safetensors\n"), err
    recipe.methods.distill = resnet_recipes.methods.Distill(labels=out.strip())
    (teacher,) = resnet_recipes.plan(recipe).teachers
    assert f"stored in {out.strip()}: 2 of each image" in teacher.text
    assert "crops repeat after 1 epoch" in teacher.text
    with pytest.raises(resnet_recipes.RecipeError, match=r"methods\.distill\.teacher is missing"):
        resnet_recipes.teach(recipe)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_reaches_program_after_save(tmp_path, train_here, number):
    def signal_itself(process: RankProcess) -> int:
        signal.raise_signal(number)
        return process.interruption.exit_code

    codes = []
    before = signal.getsignal(number)
    signal.signal(number, lambda *_: codes.append(read_ending(tmp_path / "exit.json").code))
    try:
        assert train_here(signal_itself).stopped
    finally:
        signal.signal(number, before)
    assert codes == [130 if number == signal.SIGINT else 75]


@pytest.mark.parametrize("method", ORDER, ids=lambda method: method.name)
def test_card_example_runs_in_a_user_loop(method):
    model = build_shallow_resnet18(num_classes=3)
    names = {
        "model": model,
        "params": list(model.parameters()),
        "evaluate": model.eval,
        "teacher": model,
        "np": np,
        "image": Image.new("RGB", (32, 32)),
        "pixels": torch.zeros(4, 3, 32, 32, dtype=torch.uint8),
        "images": torch.randn(4, 3, 32, 32),
        "labels": torch.tensor([0, 1, 2, 0]),
        "losses": torch.zeros(4),
        **{"step": 1, "total_steps": 20, "steps_per_epoch": 10, "num_classes": 3},
    }

    def compute(sync: bool = True) -> torch.Tensor:
        loss = model(names["images"]).square().mean()
        loss.backward()
        return loss.detach()

    lines = list(format_example(method, [hook for hook in HOOKS if method().provides(hook)]))
    assert len(lines) >= 3
    exec("\n".join(lines), names | {"compute": compute})


#: Commands that one process runs before and after the entry point of a package is fixed. The
#: process removes the package from sys.modules, but not its operations, since torch would not
#: register them again.
COMMANDS = """
import importlib, pathlib, sys
ours = [name for name in sys.modules if name.startswith("resnet_recipes")]
for name in [name for name in ours if ".ops" not in name]:
    del sys.modules[name]
from resnet_recipes import cli
points = pathlib.Path(sys.argv[1])
points.write_text("[resnet_recipes.methods]\\nmixup = darken:Darken\\n")
print([cli.main(["methods"])], flush=True)
points.write_text("[resnet_recipes.methods]\\ndarken = darken:Darken\\n")
importlib.invalidate_caches()
print([cli.main(command.split()) for command in sys.argv[2:]])
"""


@pytest.mark.slow
def test_installed_method_has_schema_card_and_plan(forks, tmp_path):
    (tmp_path / "darken.py").write_text(DARKEN)
    (tmp_path / "run_commands.py").write_text(COMMANDS)
    about = tmp_path / "darken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: darken\nVersion: 1.0\n")
    commands = [
        "methods darken",
        "plan mild methods.darken={} --verbose",
        "plan mild methods.darken.factor=0",
    ]
    code, out, err = forks.run(
        tmp_path, "run_commands", str(about / "entry_points.txt"), *commands
    ).wait()
    assert code == 0, err
    first_line, output = out.split("\n", 1)
    assert first_line == "[<ExitCode.NOT_READY: 3>]"
    assert "pip uninstall darken" in err
    assert "methods.darken.factor=0.5   factor on the brightness" in output
    assert "transform_batch  progressive_resizing, label_smoothing, darken" in output
    assert "[0, 0, <ExitCode.RECIPE: 2>]" in output
    assert "methods.darken.factor=0" in err

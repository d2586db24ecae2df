"""`--extend RUN` trains another duration from a run's stable phase, and every page shows this."""

import re
import shutil
from pathlib import Path

import pytest

from resnet_recipes.recipe.frozen_recipe import read
from tests.shared.plans import TINY
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows

WSD_ARGUMENTS = f"{TINY} schedule=wsd schedule.warmup=1ba ~methods.progressive_resizing"


@pytest.mark.slow
def test_extended_run_reports_its_origin(run_folders, forks, run_command):
    arguments = (
        f"resnet_recipes mild {WSD_ARGUMENTS} max_duration=10ba run=mine"  # stable phase: 8 steps
    )
    assert forks.run(Path.cwd(), *arguments.split()).wait()[0] == 0
    out = run_command("resnet-train -m --extend mine max_duration=20ba,30ba --dry-run").out
    total, saved = re.search(
        r"^(.+) PFLOPs .*; shared stable phases save (.+)$", out, re.MULTILINE
    ).groups()
    assert float(saved) / float(total) == pytest.approx((8 + 8) / (12 + 22), rel=0.01)
    original = Path("runs/mine").absolute()
    line = "resnet-train --extend mine max_duration=20ba"
    output = " ".join(run_command(f"{line} --dry-run").out.split())
    assert f"start the stable phase of {original} at step 8; the time counts all steps" in output
    run_command(line, 75)
    (longer,) = run_folders
    run = read(longer / "config.yaml").run
    assert (run.extends, run.name) == (str(original), "auto")
    typed = (longer / "overrides.txt").read_text().splitlines()
    assert {"optimizer.lr=0.05", "max_duration=20ba", f"run.extends={original}"} < {*typed}
    assert "max_duration=10ba" not in typed
    output = run_command("resnet-recipes runs").out.split()
    assert f"extends: {original} at step 8" in " ".join(output)
    assert "run.extends" in run_command(f"resnet-recipes compare mine {longer.name}").out
    run_command("resnet-recipes report")
    assert (
        f"continues from the stable phase of {original} at step 8."
        in Path("report.html").read_text()
    )
    run_command("resnet-train --resume last", 75)
    run_command(f"{line} --resume auto", 75)  # the unfinished run with these settings
    assert run_folders == [longer] * 3
    shutil.copytree("runs/mine", "elsewhere/copy")
    for argument, root in (("", "elsewhere"), ("run.root=third", "third")):
        run_command(f"resnet-train --extend elsewhere/copy max_duration=20ba {argument}", 75)
        run = read(run_folders[-1] / "config.yaml").run
        assert Path(run.root) == run_folders[-1].parent == Path(root).absolute()
        assert run.extends == str(Path("elsewhere/copy").absolute())
    assert {path.name for path in Path("runs").iterdir()} == {"mine", longer.name}


def test_extension_without_stable_phase_suggests_settings(run_folders, run_command):
    run_command(f"resnet-train mild {TINY} run=mine", 75)
    line = "resnet-train --extend mine max_duration=20ba"
    message = run_command(line, 2).err
    assert "try:   resnet-train --resume runs/mine\n" in message
    assert "model.weights" not in message
    checkpoints = Path("runs/mine/checkpoints")
    checkpoints.mkdir(exist_ok=True)
    Path(checkpoints, "step-00000002.json").write_text("{}")
    assert "try:   resnet-train runs/mine/config.yaml\n" in run_command(line, 2).err
    Path("runs/mine/weights.safetensors").touch()
    assert "model.weights=runs/mine " in run_command(line, 2).err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    parse_rows(
        f"""
--extend a --resume b | 2 | --resume b resumes a run, and --extend starts a new one
--extend last --resume auto | 2 | --extend last would be another run
-m --extend last seed=1,2 | 2 | --extend last would be another run
--extend b | 3 | --extend b does not exist
--extend . | 3 | --extend . is not a run folder: it has no config.yaml
--extend a mild | 2 | `mild`: --extend names the run, and a run keeps its recipe
--extend b recipe=mild epochs=60 | 2 | resnet-train epochs=60 --extend b
--extend | 2 | --extend needs a run
mild {WSD_ARGUMENTS} run.extends=b | 2 | run.extends=b: there is no run
"""
    ),
)
def test_impossible_extension_is_rejected_before_start(
    arguments, code, message, run_folders, run_command
):
    create_run_folder(Path("runs"), "a")
    assert message in run_command(f"resnet-train {arguments}", int(code)).err
    assert run_folders == []

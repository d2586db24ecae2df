"""`resnet-train --resume`: rejected changes, and the run that `auto` selects."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.api import compose
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.jobs.resume import iterate_unfinished_runs
from resnet_recipes.recipe.frozen_recipe import freeze, read
from resnet_recipes.run_folder.ending import Ending, write_ending
from resnet_recipes.run_folder.lock import LockedFolder
from resnet_recipes.run_folder.metrics import StepMetrics
from resnet_recipes.training.checkpoint import Checkpoints
from tests.data.loaders import requires_decoder
from tests.data.remote.web_server import serve_folder
from tests.shared.checks import check_text
from tests.shared.fixtures import Streams
from tests.shared.images import create_random_images
from tests.shared.plans import TINY
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows, parse_values

START_COMMAND = f"resnet-train mild {TINY}"
PHOTOS_COMMAND = f"{START_COMMAND} bs=8 batch.bn_size=8 data.backend=torchvision"
CONFIG = Path("runs/mine/config.yaml")
WALL_SECONDS = {"wall_seconds": 1.0}  # in all records


@pytest.fixture
def started_runs(run_folders: list[Path], run_command: Callable[..., Streams]) -> list[Path]:
    run_command(f"{START_COMMAND} run=mine", 75)
    return run_folders


@pytest.fixture
def explain_rejected_resume(
    run_folders: list[Path], run_command: Callable[..., Streams]
) -> Callable[..., str]:
    """Return a function that returns why `runs/mine` cannot be resumed; nothing may change."""

    def ask(arguments: str, code: int = 2) -> str:
        before = CONFIG.read_bytes(), len(run_folders)
        message = run_command(f"resnet-train --resume runs/mine {arguments}", code).err
        assert (CONFIG.read_bytes(), len(run_folders)) == before
        return " ".join(message.split())

    return ask


def test_resume_accepts_settings_without_effect_on_results(started_runs, run_command):
    arguments = "workers=3 log.interval=7ba batch.bn_size=8 data.on_bad_image=skip"
    run_command(f"resnet-train --resume runs/mine {arguments}", 75)
    assert started_runs[0] == started_runs[1]
    changed = read(CONFIG)
    assert (changed.data.workers, changed.log.interval) == (3, "7ba")
    assert (changed.batch.bn_size, changed.data.on_bad_image) == (8, "skip")


@pytest.mark.parametrize("text", ["{", "{}"])
def test_resume_with_damaged_facts_suggests_a_new_run(started_runs, run_command, text):
    Path("runs/mine/data.json").write_text(text)
    message = run_command("resnet-train --resume mine", 3).err
    assert message.startswith("error: runs/mine/data.json cannot be read: ")
    assert "\n      try:   resnet-train runs/mine/config.yaml\n" in message
    run_command("resnet-train runs/mine/config.yaml", 75)


def test_resume_rejects_moved_images_until_data_is_set(
    run_command, tmp_path, explain_rejected_resume
):
    images = create_random_images(tmp_path / "images")
    run_command(f"{PHOTOS_COMMAND} data={images} run=mine", 75)
    images.rename(tmp_path / "photos")
    message = explain_rejected_resume("", 3)
    assert "data=images does not exist" in message
    hint = "hint: if the images were moved: resnet-train --resume runs/mine data=PATH"
    assert hint in message
    message = explain_rejected_resume(f"data={tmp_path}/photo", 3)
    assert "/photo does not exist; did you mean data=photos?" in message
    assert hint in message
    config = Path("runs/mine/config.yaml")
    config.write_text(config.read_text().replace(f"{tmp_path}/images", f"{tmp_path}/data/demo"))
    message = explain_rejected_resume("", 3)
    assert "hint: `resnet-train demo` generates these images hint: if the images were" in message
    run_command(f"resnet-train --resume runs/mine data={tmp_path}/photos", 75)
    assert read(CONFIG).data.root == f"{tmp_path}/photos"


def test_resume_requests_no_address_from_a_run_folder(
    run_command, tmp_path, explain_rejected_resume
):
    images = create_random_images(tmp_path / "images")
    run_command(f"{PHOTOS_COMMAND} data={images} run=mine", 75)
    with serve_folder(images) as site:
        config = read(CONFIG)
        config.data.root = site.address
        CONFIG.write_text(freeze(config))
        assert "comes from the run folder alone" in explain_rejected_resume("", 3)
        for command in (
            "resnet-train --extend mine epochs=9 --dry-run",
            "resnet-recipes plan recipe=runs/mine/config.yaml",
        ):
            message = run_command(command, 3).err
            assert "comes from the run folder alone" in message
            assert f"use:   data={site.address}\n" in message
        with pytest.raises(NotReadyError, match="comes from the run folder alone"):
            compose("runs/mine/config.yaml")
        assert not site.asked
        assert "comes from the run folder alone" not in explain_rejected_resume(
            f"data={site.address}", 3
        )
        assert site.asked


@pytest.mark.parametrize("text", ['{"task": "evaluate"}', '{"spans": "all"}', "[1]"])
def test_resume_rejects_folder_of_a_measurement(text, started_runs, explain_rejected_resume):
    Path("runs/mine/task.json").write_text(text)
    assert "which cannot be resumed" in explain_rejected_resume("", 3)


def test_resume_rejects_a_file(run_command, tmp_path):
    (tmp_path / "net.pth").touch()
    message = run_command(f"resnet-train --resume {tmp_path / 'net.pth'}", 3).err
    assert "net.pth is not a run folder: it is a file" in message
    checkpoint = create_run_folder(tmp_path, "a") / "checkpoints/a.pt"
    checkpoint.touch()
    message = run_command(f"resnet-train --resume {checkpoint}", 3).err
    assert "use:   --resume a\n" in message


@pytest.mark.parametrize(
    ("change", "code", "message"),
    parse_rows(
        """
data={tmp}/others | 3 | data=images: training images differ try: resnet-train --resume runs/mine
batch.bn_size=3 | 2 | must divide the 8 images of each device (bs=8 on 1 device)
gpus=3 | 2 | must be divisible by 3, the number of devices
launch.device=cuda | 3 | torch sees no GPU on this machine
checkpoint.keep=99 | 3 | GB free, and the run needs another
evaluation.interval=0.001dur evaluation.offset=2dur | 2 | must be between 0dur and 1dur
"""
    ),
)
def test_rejected_resume_leaves_run_resumable(
    run_command, tmp_path, explain_rejected_resume, set_free_space, change, code, message
):
    images = create_random_images(tmp_path / "images")
    set_free_space(5 << 30)
    many = "checkpoint.interval=1ba max_duration=99ba"
    run_command(f"{PHOTOS_COMMAND} {many} data={images} run=mine", 75)
    shutil.copytree(images, tmp_path / "others")
    (tmp_path / "others/train/pattern3/0.jpg").write_bytes(b"")
    for flags in ("", "--dry-run"):
        explanation = explain_rejected_resume(f"{change.format(tmp=tmp_path)} {flags}", int(code))
        assert message in explanation
    run_command("resnet-train --resume runs/mine --dry-run")
    run_command("resnet-train --resume runs/mine", 75)


@pytest.mark.parametrize(
    ("saved", "exit_code", "code"),
    parse_values("""
[2, 3] | null | 3
[2] | 75 | 3
[2, 2] | 1 | 75
[] | 75 | 75
"""),
)
def test_resume_rejects_run_without_its_checkpoints(
    started_runs, run_command, saved, exit_code, code
):
    text = "".join(
        json.dumps(
            {"kind": "saved", "step": step, "epoch": step / 8, "seconds": 1.0, **WALL_SECONDS}
        )
        + "\n"
        for step in saved
    )
    Path("runs/mine/metrics.jsonl").write_text(text)
    if exit_code:
        write_ending(Path("runs/mine/exit.json"), Ending(exit_code))
    message = run_command("resnet-train --resume mine", code).err
    if code == 3:
        lost = f"runs/mine has no checkpoints, but the run had reached epoch {saved[-1] / 8:.2f}"
        assert f"{lost}\n      try:   resnet-train runs/mine/config.yaml\n" in message
        run_command("resnet-train --resume mine --dry-run", 3)
        run_command("resnet-train runs/mine/config.yaml --dry-run")


def test_resume_dry_run_changes_nothing(started_runs, run_command):
    before = CONFIG.read_bytes()
    plan = run_command("resnet-train --resume runs/mine --dry-run workers=3").out
    assert "4 steps" in plan
    assert "runs/mine, resumed at epoch 0.00 of 0.5;" in plan
    checkpoints = Checkpoints(Path("runs/mine/checkpoints"), keep=2)
    checkpoints.open_for_writing()
    for step in (2, 3):
        checkpoints.save(step, {}, wait=True)
    Path("runs/mine/checkpoints/step-00000003.pt").write_bytes(b"")
    assert (
        "resumed at epoch 0.25 of 0.5"
        in run_command("resnet-train --resume runs/mine --dry-run").out
    )
    metrics = StepMetrics(2, 2, 1.0, 0.5, 64, 2.0, 50.0, 0.5).to_record()
    records = [
        {"kind": "step", "step": step, "epoch": 0.25, "wall_seconds": 1.0, "seconds_left": left}
        for step, left in ((2, 65), (3, 9))
    ]
    text = "".join(json.dumps(metrics | record) + "\n" for record in records)
    Path("runs/mine/metrics.jsonl").write_text(text)
    plan = run_command("resnet-train --resume runs/mine --dry-run launch.price=36").out
    assert "time left  about 1:05 with evaluations" in plan
    assert "cost left  $0.65 at $36.00 per hour" in plan
    assert "counts all" not in plan
    assert "progressive_resizing does not reach" not in plan
    run_command("resnet-train --resume runs/mine --dry-run lr=1", 2)
    run_command("resnet-train --resume runs/other --dry-run", 3)
    run_command(f"{START_COMMAND} --resume auto --dry-run")
    Path("runs/mine/checkpoints/step-00000002.pt").write_bytes(b"")
    for flags in ("", " --dry-run"):
        message = run_command(f"resnet-train --resume runs/mine{flags}", 3).err
        clause = "cannot be resumed: no checkpoint in runs/mine/checkpoints can be used"
        assert f"runs/mine {clause}" in message
        assert message.count("step 2 was skipped") == 1
        assert "try:   resnet-train runs/mine/config.yaml\n" in message
    message = run_command("resnet-train --resume runs/mine lr=9", 2).err
    assert "try:   resnet-train runs/mine/config.yaml lr=9\n" in message
    assert "cannot be resumed" in message
    assert "--resume" not in message
    assert len(started_runs) == 1
    assert CONFIG.read_bytes() == before


def test_resume_keeps_the_measured_micro_batch(started_runs, run_command, explain_rejected_resume):
    run_command(f"{START_COMMAND} --resume auto run=mine batch.bn_size=auto", 75)
    assert read(CONFIG).batch.bn_size == 16
    assert "this run uses 16" in explain_rejected_resume("batch.bn_size=auto")


@requires_decoder
def test_resume_keeps_the_size_of_images_in_memory(run_folders, run_command, tmp_path):
    images = create_random_images(tmp_path / "images")
    sizes = []
    for _ in range(2):
        run_command(f"{PHOTOS_COMMAND} data={images} cache=auto run=mine --resume auto", 75)
        sizes.append(read(CONFIG).data.memory_pixels)
    assert sizes == [64, 64]


@pytest.mark.parametrize("arguments", ["workers=3", "--dry-run"])
def test_resume_rejects_a_running_run(started_runs, explain_rejected_resume, arguments):
    with LockedFolder(Path("runs/mine")):
        assert "is in use by process" in explain_rejected_resume(arguments, 3)


def test_resume_of_finished_run_trains_nothing(started_runs, run_command):
    Path("runs/mine/summary.json").write_text("{}")
    for arguments in ("", "--dry-run", "lr=0.05"):  # its own value
        assert (
            "is finished; its results"
            in run_command(f"resnet-train --resume runs/mine {arguments}").err
        )
    message = run_command("resnet-train --resume runs/mine lr=1", 2).err
    assert "lr=1 differs from the run, which uses 0.05" in message
    command = "resnet-train runs/mine/config.yaml model.weights=runs/mine lr=1\n"
    assert f"try:   {command}" in message
    message = run_command("resnet-train --resume runs/mine model.weights=last lr=1", 2).err
    assert "model.weights=last differs from the run, which does not set it\n" in message
    assert f"try:   {command}" in message
    message = run_command(f"{START_COMMAND} lr=1 run=mine --resume auto", 2).err
    assert "\n      use:   run=another\n" in message
    assert "try:" not in message
    assert len(started_runs) == 1


@pytest.mark.parametrize("file", ["summary.json", "weights.safetensors"])
def test_resume_of_finished_run_names_damaged_result(started_runs, run_command, file):
    Path("runs/mine/summary.json").write_text("{}")
    Path("runs/mine", file).write_text("{")
    Path("runs/mine/checkpoints").mkdir(exist_ok=True)
    message = run_command("resnet-train --resume mine", 3).err
    assert message.startswith(f"error: runs/mine/{file} cannot be read: ")
    assert "try:" not in message
    Path("runs/mine/checkpoints/step-00000004.json").write_text('{"bytes": 0}')
    message = run_command("resnet-train --resume mine", 3).err
    assert "try:" not in message
    Path("runs/mine/checkpoints/step-00000004.pt").touch()
    message = run_command("resnet-train --resume mine", 3).err
    fix = "rm runs/mine/summary.json && resnet-train --resume runs/mine"
    assert f"\n      try:   {fix}\n" in message


@pytest.mark.parametrize("flags", ["", "--dry-run"])
def test_resume_of_finished_run_rejects_settings_without_effect(started_runs, run_command, flags):
    Path("runs/mine/summary.json").write_text("{}")
    arguments = "gpus=1 log.interval=7ba data=/elsewhere"
    message = run_command(f"resnet-train --resume runs/mine {arguments} {flags}", 2).err
    assert message.count("has no effect: runs/mine is finished\n      hint:  remove it") == 2
    assert "gpus" not in message
    run_command(f"{START_COMMAND} run=mine workers=3 --resume auto")  # as requeued by a scheduler


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
hot | `hot`: --resume names the run, and a run keeps its recipe
recipe=hot | recipe=hot: --resume names the run, and a run keeps its recipe
run=other | run=other: --resume names the run, and a run keeps its recipe
run.root=elsewhere | run.root=elsewhere: --resume names the run, and a run keeps its recipe
hot | try: resnet-train --resume runs/mine Nothing was started
run=other | try: resnet-train --resume runs/mine Nothing was started
hot --parallel 2 | !--resume runs/mine --parallel
--checkpoint last | try: resnet-train --resume runs/mine hint: | !model.weights
checkpoint=last | try: resnet-train --resume runs/mine hint: | !model.weights
"""
    ),
)
def test_resume_rejects_what_the_run_keeps(started_runs, explain_rejected_resume, row):
    arguments, *parts = row
    check_text(explain_rejected_resume(arguments), parts)


def test_resume_auto_finds_newest_unfinished_run(run_folders, run_command):
    for index, name in enumerate(("old", "new", "done")):
        run_command(f"{START_COMMAND} run={name}", 75)
        os.utime(f"runs/{name}/overrides.txt", (index, index))
    Path("runs/done/summary.json").write_text("{}")
    assert list(iterate_unfinished_runs(Path("runs"))) == [Path("runs/new"), Path("runs/old")]
    run_command("resnet-train --resume auto", 75)
    assert run_folders[-1].name == "new"


def test_resume_auto_with_name_starts_once_then_resumes(run_folders, run_command):
    for _ in range(3):
        run_command(f"{START_COMMAND} run=job17 --resume auto", 75)
    assert [folder.name for folder in run_folders] == ["job17"] * 3
    assert [path.name for path in Path("runs").iterdir()] == ["job17"]


def test_resume_auto_finds_newest_run_of_same_settings(run_folders, run_command):
    for arguments in ("", "seed=5", "workers=3 --resume auto"):
        run_command(f"{START_COMMAND} {arguments}", 75)
    assert run_folders[2] == run_folders[0]
    recipe = read(run_folders[0] / "config.yaml")
    assert (recipe.data.workers, recipe.run.name) == (3, "auto")


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("lr=0.1", "optimizer.lr"),
        ("data.root=/elsewhere", "data.root"),
        ("seed=5 lr=1", "optimizer.lr, seed"),
    ],
)
def test_resume_auto_starts_new_run_for_other_settings(run_folders, run_command, argument, key):
    run_command(START_COMMAND, 75)
    message = run_command(f"{START_COMMAND} {argument} --resume auto", 75).err
    assert run_folders[1] != run_folders[0]
    note = f"differs in {key}): starting a new one"
    assert note in message
    assert note not in run_command(f"{START_COMMAND} {argument} gpus=9 --resume auto", 2).err


def test_resume_auto_rejects_name_with_other_settings(started_runs, run_command):
    message = run_command(f"{START_COMMAND} lr=0.1 run=mine --resume auto", 2).err
    assert "lr=0.1 differs from the run, which uses 0.05" in message
    assert "run=another" in message
    assert len(started_runs) == 1
    message = run_command(f"{START_COMMAND} lr=0.1 bs=32 run=mine --resume auto --foo", 2).err
    assert "error: 3 problems\n\n  unknown flag --foo\n" in message
    assert message.count("use:   run=another") == 1


def test_resume_auto_reports_other_recipe_as_one_problem(started_runs, run_command):
    recipe = read(CONFIG).name
    message = run_command("resnet-train hot data=images bs=4 run=mine --resume auto", 2).err
    assert message.startswith(f"error: run=mine is a run of another recipe, {recipe}\n")
    assert "try:   resnet-train --resume runs/mine\n" in message


def test_resume_rejects_folder_with_a_link(started_runs, explain_rejected_resume, tmp_path):
    (tmp_path / "precious").mkdir()
    Path("runs/mine/checkpoints").symlink_to(tmp_path / "precious")
    assert "runs/mine/checkpoints is a symbolic link" in explain_rejected_resume("", 3)


@pytest.mark.parametrize("name", ["exit.json", "stop.txt"])
def test_resume_deletes_the_previous_ending(name, started_runs, run_command):
    ending = Path("runs/mine", name)
    ending.write_text('{"code": 75}')
    run_command("resnet-train --resume runs/mine", 75)
    assert not ending.exists()


def test_resume_rejects_run_replaced_before_its_lock(started_runs, run_command, monkeypatch):
    original = read(CONFIG)

    def replace_and_lock(folder: Path) -> LockedFolder:
        CONFIG.write_bytes(freeze(replace(original, seed=7)).encode())
        return LockedFolder(folder)

    monkeypatch.setattr("resnet_recipes.jobs.resume.LockedFolder", replace_and_lock)
    message = run_command("resnet-train --resume runs/mine workers=3", 2).err
    assert "seed=42 differs from the run, which uses 7" in message
    assert read(CONFIG) == replace(original, seed=7)
    assert len(started_runs) == 1

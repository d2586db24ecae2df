"""Folders become .beton files, and nothing is overwritten."""

from pathlib import Path

import pytest


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


def test_convert_of_a_flat_folder_explains_the_layout(run_command, image_folder):
    message = run_command(f"resnet-recipes convert {image_folder}/val/pattern0 out", 3).err
    assert "hint:  the layout is PATH/train/CLASS/image.jpg and PATH/val/CLASS/" in message


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


def test_swapped_paths_suggest_the_command_in_order(run_command, image_folder):
    err = run_command(f"resnet-recipes convert new {image_folder} workers=1", 3).err
    assert f"try:   resnet-recipes convert {image_folder} new workers=1\n" in err

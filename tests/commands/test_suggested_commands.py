"""Commands that messages suggest are accepted."""

import re
import shlex

import pytest

from resnet_recipes import cli
from tests.run_folders import create_run_folder
from tests.tables import parse_rows

#: Arguments of `resnet-train demo ...`, and the complete line below the error.
SETTINGS = parse_rows(
    """
data.train_size=48px | data.train_size=48
data.val_share=10% | data.val_share=0
data.val_share=10 | data.val_share=0
data.crop_scale=0.1,1 | 'data.crop_scale=[0.1,1]'
lr=10% | lr=0.1
schedule.warmup=5 | schedule.warmup=5ep
evaluation.interval=5 | evaluation.interval=5ep
launch.max_wall=1d | launch.max_wall=24h
run='my run' | run=my-run
run=runs/a | run=a
data: images | data=images
lr: 0.1 | lr=0.1
epochs=3epochs | epochs=3ep
max_duration=300 | max_duration=300ep
max_duration=100steps | max_duration=100ba
bs=1e3 | bs=1000
stop_at_top1=90% | stop_at_top1=90
launch.max_wall=1:30:00 | launch.max_wall=90m
epochs=1h | budget=1h
max_duration=1h | budget=1h
1h | budget=1h
device=mps | launch.device=cpu
model=resnet18.pt | model.weights=resnet18.pt
+recipe=hot | recipe=hot
-methods.ema | '~methods.ema'
--cfg yaml | resnet-train demo --cfg   prints every setting
--cfg all | resnet-train demo --cfg   prints every setting
--run | run=VALUE
--max_duration 5ep | max_duration=5ep
"""
)

#: Complete commands, run in a folder with images and a run, and the line.
COMMANDS = parse_rows(
    """
train mild data=images model=vit_base | model.name=timm:vit_base_
classify first images | resnet-recipes predict first images
eval last first lr=0.5 |
show first | recipe=runs/first/config.yaml
show 'a b' | 'recipe=a b/config.yaml'
train first data=images | recipe=runs/first/config.yaml
convert images out.zip | resnet-recipes convert images out
convert images out max_resolution=500px | max_resolution=500
convert images out jpeg_quality=0.9 | jpeg_quality=90
job mild data=/d nodes=two --for slurm | nodes=2
job mild data=/d nodes=0 --for slurm | nodes=1
job mild data=/d --partition gpu --for slurm | write the script to job.sh, then: sbatch
job mild data=/d --for slurm --time 2h | --time 2:00:00
export first --to onnx --out x --dtype fp16 | --dtype float16
export first format=onnx --out x | --to onnx
export first format=onnx half=True | --dtype float16
export first --to onnx --out x precision.dtype=fp16 | --dtype float16
export first --to onnx --out x dtype=int8 | --dtype int8
export first --to onnx --out x half=false | resnet-recipes eval --help
eval first model.name=resnet18 --jsn | --json
infer --top 3 | resnet-recipes predict RUN IMAGE --top 3
runs status=done | state=finished
runs fnished | resnet-recipes runs state=finished
runs done | resnet-recipes runs state=finished
train demo data=images epochs=2,5 | resnet-train -m recipe=demo data=images epochs=2,5
diff mild lastt | last
predict first --source images | resnet-recipes predict first images
cp mild recipes/ | recipes/recipes.yaml
list runs | resnet-recipes runs runs
list state=finished | resnet-recipes runs state=finished
list | resnet-recipes ls
eval first --out x.png | --png x.png
"""
)


@pytest.fixture
def work_folder(image_folder, tmp_path):
    (tmp_path / "images").symlink_to(image_folder)
    create_run_folder(tmp_path, "a b")
    return create_run_folder(tmp_path / "runs", "first")


def read_advice(capsys: pytest.CaptureFixture[str]) -> str:
    first, *rest = capsys.readouterr().err.splitlines()
    if re.fullmatch(r"error: \d+ problems", first):
        _, first, *rest = rest
    if meant := re.search(r"did you mean (.*)\?$", first):
        return meant[1]
    return re.sub("^(try:|use:|hint:|valid:) *", "", rest[0].strip())


@pytest.mark.parametrize(("typed", "line"), SETTINGS)
def test_suggested_settings_are_accepted(typed, line, capsys, work_folder):
    assert cli.train(["demo", "data=images", *shlex.split(typed)]) == 2
    advice = read_advice(capsys)
    assert advice == line or (line.endswith(",") and advice.startswith(line))
    if not re.search(" uses |VALUE|--cfg", line):
        arguments = shlex.split(line) if "recipe=" in line else ["demo", *shlex.split(line)]
        assert cli.train([*arguments, "data=images", "--cfg"]) == 0


@pytest.mark.parametrize(("typed", "line"), COMMANDS)
def test_suggested_commands_are_accepted(typed, line, capsys, work_folder):
    assert cli.main(shlex.split(typed)) in (2, 3)
    advice = read_advice(capsys)
    assert advice.startswith(line)
    assert line or not advice or "finished run" in advice
    program, *rest = shlex.split(re.split("   | > ", advice)[0]) or [""]
    if program == "resnet-recipes" and "predict" not in rest[:1]:
        assert cli.main(rest) == 0
    elif program.startswith("model.name="):
        assert cli.train(["mild", program, "--cfg"]) == 0

"""Suggestions for typing errors and for habits from other tools; complete suggestions are run."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.shared.fixtures import Streams
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows

#: Arguments of `resnet-train mild data.backend=synthetic ...`, and the suggestion.
SETTINGS = parse_rows(
    r"""
--fast-dev-run | --check
-v | --verbose
-m seed=1,2 --n_jobs 2 | --parallel 2
-m seed=1,2 --jobs 2 | --parallel 2
--jobs 2 | -m --parallel 2
-m seed=1,2 --num_parallel 2 | --parallel 2
--resume | resnet-train --resume last
resume=true | --resume last
amp=false | precision.dtype=fp32
gpu_ids=3 | CUDA_VISIBLE_DEVICES=3 resnet-train ... gpus=1
dropout=0.1 | methods.stochastic_depth.drop_rate=0.1
--use_ema true | 'methods.ema={}'
mixup=true | 'methods.mixup={}'
ema.decay=0.999 | methods.ema.half_life=DURATION
freeze=10 | model.freeze=backbone model.weights=torchvision
freeze=none | model.freeze=none
--sync-bn | remove it
weight_decay=none | wd=0
workers 4 | workers=4
--min-lr 1e-6 | schedule.final=FRACTION
--crop-mode border | border is data.fit=pad, and squash is data.fit=squash
hsv_v=0.4 | methods.color_jitter.brightness=0.4 methods.color_jitter.contrast=0.4
--color-jitter-prob 0.4 | 'resnet-recipes methods' lists all methods
fliplr=0 | data.flip=false
mixup=0 | remove it: mild does not use mixup
--sam | 'methods.sam={}'
blurpool=false | '~methods.blurpool'
methods=[mixup,sam] | 'methods.mixup={}' 'methods.sam={}'
methods.colout | 'methods.colout={}'
+methods/mixup=0.2 | methods.mixup.alpha=0.2
wandb.project=x | WANDB_PROJECT=x resnet-train ... 'log.to=[wandb]'
log.to=none | 'log.to=[]'
--log.interval 5 | log.interval=5ba
'epochs: 5' | epochs=5
budget=20$ | launch.price=PRICE_PER_HOUR
--data-path '/my images' | 'data=/my images'
devices=0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
model.lr=1 | optimizer.lr=1
data.train_size=48px | data.train_size=48
data.crop_scale=0.1,1 | 'data.crop_scale=[0.1,1]'
schedule.warmup=5 | schedule.warmup=5ep
resnet18 | model.name=resnet18
timm:resnet18 | model.name=timm:resnet18
--config-name foo | recipe=NAME
--opt foo | optimizer=NAME
evaluation.interval=5 | evaluation.interval=5ep
lr: 0.1 | lr=0.1
bs=1e3 | bs=1000
imgsz=320 | data.train_size=320 data.eval_size=320 data.eval_resize=320
imgsz=64 | data.train_size=64 data.eval_size=64 data.eval_resize=64
--img-size 320 | data.train_size=320 data.eval_size=320 data.eval_resize=320
imgsz= | data.train_size=VALUE data.eval_size=VALUE data.eval_resize=VALUE
color_jitter= | needs a value
--color-jitter | needs a value
stop_at_top1=90% | stop_at_top1=90
launch.max_wall=1:30:00 | launch.max_wall=90m
1h | budget=1h
--time 10min | budget=10m
--out results | run.root=results
device=mps | launch.device=cpu
trainer=gpu | gpus= and launch.device= set the devices; by default, a run uses all GPUs
patience=5 | keeps the best weights; no run stops early, except at the accuracy of stop_at_top1=
model=resnet18.pt | model.weights=resnet18.pt
model=YOLO11n-cls.pt | model.weights=torchvision
weights=yolov8n-cls.pt | networks of Ultralytics cannot be loaded
model=vit_base | model.name=timm:vit_base_mci_224
model.name=timm:tf_efficientnet_lite9 | model.name=timm:tf_efficientnet_lite0
-methods.ema | '~methods.ema'
foo.mode=min | remove it: resnet-train trains image classifiers
methods.randaugment=9 | its other settings: severity, augmentation_set
gpus=2 | `resnet-recipes plan` with these arguments plans for another machine
--cfg all | resnet-train mild --cfg   prints every setting
--run | run=VALUE
--max_duration 5ep | max_duration=5ep
pretrained=1 model.weights=x.pt | remove it: model.weights=x.pt is set
checkpoint_path=lite0.pth | model.weights=lite0.pth
data.crop_scale=[0.1, 1] | 'data.crop_scale=[0.1,1]'
data.train_size=[48] | data.train_size=48
model.name=resnet5O | model.name=resnet50
methods.mixup.alpha=-1 | methods.mixup.alpha=0.2
methods=[mixup,cutmix] | 'methods.mixup_or_cutmix={}'
"""
)

#: Complete commands, run in a folder with images, runs and a recipe, and a part of the suggestion.
COMMANDS = parse_rows(
    """
resnet-train plan mild | resnet-recipes plan mild
resnet-recipes job --for slurm data=images | resnet-recipes job small data=images --for slurm
resnet-recipes plan data=images bs=8 --verbose | plan small data=images bs=8 --verbose
resnet-train finetune data=images momentum=0.9 | optimizer.momentum is not a setting of adamw
resnet-train mild data=images optimizer.decay=0.1 | wd= is the weight decay, schedule.gamma=
resnet-train mild data=images schedule.time=2 | name, warmup, start
resnet-train resnet34 data=images | model.name=resnet34 data=images
resnet-train resnet-34 data=images | model.name=resnet34 data=images
resnet-recipes plan resnet_50 | resnet-recipes plan mild model.name=resnet50
resnet-recipes logs first | resnet-recipes watch first
resnet-recipes settings | resnet-train mild --cfg
resnet-recipes sweep mild seed=1,2 | resnet-train -m mild seed=1,2
resnet-train resume first | resnet-train --resume first
resnet-train mild --evaluate | resnet-recipes eval last
resnet-train mild data=images --config-dir conf | --recipes conf
resnet-train mild data=images --ckpt 'my run' | --resume 'my run'
resnet-recipes eval first --csv | --csv eval.csv
resnet-recipes mild data=images | resnet-train mild data=images
resnet-recipes profile mild data=x | resnet-recipes estimate mild data=x
resnet-recipes fit mild | resnet-train mild
resnet-recipes new wider | resnet-recipes cp mild recipes/wider.yaml
resnet-recipes list --help | unknown command list
resnet-recipes --list | unknown flag --list
resnet-recipes job --for k8s mild data=/d | did you mean kubernetes?
resnet-train mild,hot data=images epochs=5 | resnet-train -m recipe=mild,hot data=images epochs=5
resnet-train mild data=images cache=true | cache=auto
resnet-recipes show a b | `show a b` needs the name of one recipe
resnet-recipes export --run first --format jit | --to exported_program
resnet-recipes convert --src images --dst b | resnet-recipes convert images b
resnet-recipes convert --out b images | resnet-recipes convert images b
resnet-recipes eval --run first --batch-size 4 | resnet-recipes eval RUN|FILE
resnet-recipes predict --weights first --source nowhere | resnet-recipes predict RUN|FILE
resnet-recipes predict first images --topk 3 | --top 3
resnet-recipes runs sort=top1 | --sort top1
resnet-recipes runs --top1 | --sort top1
resnet-recipes runs --limit 3 | --sort, --price, --yes, --json, --csv, --help
resnet-recipes runs/first | resnet-recipes watch runs/first
resnet-recipes cp mild My-Recipe | recipes/my_recipe.yaml
resnet-train mild data=images recipe= | recipe=mild
resnet-train -m mild data=images seed=range(1,4,0) | as in seed=1,2,3 or seed=range(1,4)
resnet-train medium_rare | did you mean medium?
resnet-train mild data=images schedule=CosineAnnealingLR | did you mean cosine?
resnet-train mild data=file:///images | data=/images
resnet-train mild data=https://host/images.zip | unpack it, and pass the folder
resnet-recipes eval first --batch-size 64 | batch.eval_size=64
resnet-recipes eval first --gpu 0 | CUDA_VISIBLE_DEVICES=0 resnet-recipes eval ... gpus=1
resnet-train mild data=images seed=[1,2] | -m seed=1,2
resnet-train mild data=images schedule=wsd schedule.cooldown=2 | schedule.cooldown=2ep
resnet-train mild data=images sampler=weighted | data.sampling=balanced
resnet-train mild --no-such-thing | resnet-train mild --cfg   prints every setting
resnet-recipes eval first --gallery worst.png | --gallery worst.html
resnet-recipes predict first images --out x.csv | --csv x.csv
resnet-recipes export first --to onnx --out model.onnx | --out model
resnet-recipes runs --format json | --json
resnet-recipes export first --onnx --out x | --to onnx
resnet-recipes report --out report.pdf | --out report.html
resnet-recipes report --out first | --out first.html
resnet-recipes compare first last | `compare first last` needs at least two different runs
resnet-train --resume auto run=other data=images | there is no run runs/other
resnet-recipes compare first hot | resnet-recipes diff first hot
resnet-recipes plan mild data=images --resume last | resnet-train --resume last
resnet-recipes predict images first | resnet-recipes predict first images
resnet-train mild data=images epochs: 5 | epochs: 5: settings are written key=value
resnet-recipes convert images images | `images` already exists
resnet-recipes convert images b write_mode=jgp | write_mode=jpg
resnet-train mild data=images ~methods.mixpu | mild uses 
resnet-train mild data=images ~optimizer.lr | mild uses lr=2.048
resnet-train mild data=images gpus=100 | for several machines: resnet-recipes job
resnet-train mild data=images --optimizer AdamW | optimizer=adamw
resnet-recipes predict first images --conf 0.5 | --top, --csv
resnet-recipes doctor data=images | resnet-recipes doctor data images
resnet-recipes doctor data data=images | resnet-recipes doctor data images
resnet-recipes job slurm mild data=/d | --for slurm
resnet-recipes job --engine k8s mild data=/storage/d | --for kubernetes
resnet-recipes estimate mild,hot data=/d | resnet-train -m recipe=mild,hot data=/d --dry-run
resnet-recipes job --for slurm mild hot data=/d | job -m recipe=mild,hot data=/d --for slurm
resnet-recipes estimate price=abc data=/d | --price PER_HOUR
resnet-recipes job --for slurm mild data=/d --exclusive | sbatch --exclusive job.sh
resnet-recipes job --for torchx mild data=/d --mem 4 | set it in the file
resnet-recipes eval --data --model first | data=VALUE
resnet-recipes predict --model first images | resnet-recipes predict first images
resnet-recipes export first --half | --dtype float16
resnet-recipes submit mild data=/d | resnet-recipes job --for slurm mild data=/d
resnet-recipes job --for slurm mild data=/d -p gpu | then: sbatch -p gpu job.sh
resnet-recipes job --for slurm mild data=/d --gres=gpu:a100:2 | gpus=2
resnet-recipes eval first --verbose | --json, --csv, --png
resnet-recipes export first --to int8 --out x | --to onnx --dtype int8
resnet-recipes export first --to pth --out x | --to torchvision
resnet-recipes plan mild nodes=2 | as in gpus=16
resnet-train val first data=images | resnet-recipes eval first data=images
resnet-recipes export first onnx | resnet-recipes export first --to onnx --out exported
resnet-recipes export first --to timm --out x --push me/it | --push hf:me/it
resnet-train --list mild data=x | resnet-recipes show NAME
resnet-recipes predict images | resnet-recipes predict RUN images
resnet-recipes predict images/val/pattern0/1.jpg | predict RUN images/val/pattern0/1.jpg
resnet-recipes predict nowhere.JPG | resnet-recipes predict RUN nowhere.JPG
resnet-recipes predict junk.pth | resnet-recipes predict junk.pth IMAGE
resnet-recipes classify first | resnet-recipes predict first IMAGE
resnet-train predict data=images | resnet-recipes predict RUN IMAGE
resnet-train validate data=images | resnet-recipes eval last data=images
resnet-train validate recipes/mine.yaml | resnet-recipes validate recipes/mine.yaml
resnet-train tune | resnet-train finetune data=PATH -m lr=0.003,0.01
resnet-train tune lr=1,2 data=images | resnet-train finetune -m lr=1,2 data=images
resnet-train tune mild lr=1,2 data=images | resnet-train -m mild lr=1,2 data=images
resnet-recipes sweep mild help | resnet-train -m mild data=PATH
resnet-recipes fit mild bs=64 | resnet-train mild bs=64 data=PATH
resnet-recipes fit demo | resnet-train demo
resnet-train mild data=images augment=true | 'methods.NAME={}' turns a method on
resnet-train mild data=images --verbse | unknown flag --verbse; did you mean --verbose?
resnet-recipes --hepl | did you mean --help?
resnet-recipes --completion zsh | resnet-train --completion zsh
resnet-recipes completion bash | resnet-train --completion bash
resnet-recipes plan mild --version | resnet-recipes --version
resnet-recipes --verson | did you mean --version?
resnet-recipes show 'my run' | resnet-recipes show 'my run/config.yaml'
resnet-recipes show first | resnet-recipes show runs/first/config.yaml
resnet-recipes plan first seed=1 | resnet-recipes plan runs/first/config.yaml seed=1
resnet-recipes train first | resnet-recipes train runs/first/config.yaml
resnet-recipes show mixup | resnet-recipes methods mixup
resnet-recipes show sgd | resnet-recipes methods sgd
resnet-recipes methods mild | resnet-recipes show mild
resnet-recipes methods cutout | unknown method cutout; did you mean random_erasing?
resnet-recipes methods dropout | drops residual blocks
resnet-recipes convert images out.zip | resnet-recipes convert images out
resnet-recipes convert images out max_resolution=500px | max_resolution=500
resnet-recipes convert images out jpeg_quality=0.9 | jpeg_quality=90
resnet-recipes job mild data=/d nodes=0 --for slurm | nodes=1
resnet-recipes job mild data=/d --partition gpu --for slurm | write the script to job.sh, then
resnet-recipes job mild data=/d --for slurm --time 2h | --time 2:00:00
resnet-recipes export first --to onnx --out x precision.dtype=fp16 | --dtype float16
resnet-recipes export first --to onnx --out x dtype=int8 | --dtype int8
resnet-recipes export first --to onnx --out x half=false | resnet-recipes eval --help
resnet-recipes eval first model.name=resnet18 --jsn | --json
resnet-recipes infer --top 3 | resnet-recipes predict RUN IMAGE --top 3
resnet-train demo data=images epochs=2,5 | resnet-train -m recipe=demo data=images epochs=2,5
resnet-recipes diff mild lastt | last
resnet-recipes cp mild recipes/ | recipes/recipes.yaml
resnet-recipes list runs | resnet-recipes runs runs
resnet-recipes list | resnet-recipes ls
resnet-recipes eval first --out x.png | --png x.png
resnet-train small data=images model.name=timm:convnext_tiny | model.stem=standard
resnet-train mild data=images schedule.milestones=[30,60] | schedule.name=multistep
resnet-recipes test --weights X --data Y | resnet-recipes eval RUN|FILE
resnet-recipes job --for slurm mild data=/d --mem 32G | sbatch --mem 32G
resnet-train finetune data=images pretrained=1 | remove it: model.weights=torchvision is set
resnet-recipes cp first recipes/new.yaml | resnet-recipes cp mild recipes/new.yaml
resnet-recipes cp runs/first/config.yaml recipes/new.yaml | cp mild recipes/new.yaml
resnet-recipes cp first recipes/new.yaml | the run used epochs=4 seed=1
resnet-recipes watch --run first --once | resnet-recipes watch first --once
resnet-recipes watch -f first | resnet-recipes watch first
resnet-recipes report --path runs | resnet-recipes report runs
resnet-recipes doctor --data images | resnet-recipes doctor data images
resnet-recipes doctor --gpu | did you mean gpu?
resnet-train mild data=images schedule=onecycle lr=x | did you mean cosine?
resnet-train mild data=images model.name=timm:efficientnet_b0 model.freeze=all | none, backbone
resnet-train mild data=images model.name=timm:resnet18 drop_path=1 | model.args.drop_path_rate=1
resnet-train finetune data=images model.name=timm:resnet18 pretrained=1 | error: unknown setting
resnet-train finetune data=images model.name=timm:resnet18 pretrained=1 | weights=timm:resnet18
resnet-train mild data=images model.name=timm:efficientnet_lite0_tf | timm:tf_efficientnet_lite0
resnet-recipes export first out --to onnx | error: --out is missing
resnet-train fit finetune data=images | resnet-train finetune data=images
resnet-train mild data=images optimizer=adma | did you mean adamw?
resnet-train finetune data=images momentum=0.9 | momentum is a setting of decoupled_sgdw, sgd
resnet-train mode=train task=classify data=images | remove it: resnet-train trains
resnet-train mild data=images --include-top false | auto counts the classes of the images
resnet-train finetune data=images lr=x model.weights=resnet50 | model.weights=torchvision
resnet-recipes eval timm:resnet50 model.weights=my.pth | my.pth model.name=timm:resnet50
resnet-train mild data=images CUDA_VISIBLE_DEVICES=1 | CUDA_VISIBLE_DEVICES=1 resnet-train ...
resnet-recipes job mild data=/d --slurm | did you mean --for slurm?
resnet-recipes job mild data=/d --kubectl | did you mean --for kubernetes?
resnet-recipes eval first --results-file x.csv | did you mean --csv x.csv?
resnet-recipes estimate mild data=images --time 2h | did you mean --within 2h?
resnet-recipes convert --data-dir images --write-path b | resnet-recipes convert images b
resnet-recipes models | resnet-recipes ls
resnet-recipes info hot | resnet-recipes show hot
resnet-recipes summary first | resnet-recipes runs first
resnet-recipes report --logdir runs | resnet-recipes report runs
resnet-recipes cp mild recipes/new.yaml data=images | resnet-recipes cp mild recipes/new.yaml
resnet-recipes watch first second | resnet-recipes watch first
resnet-train -m recipe=mild data=images seeds=1,2 | seeds=1,2; did you mean seed=1,2?
resnet-train -m recipe=mild data=images lr=0.05, 0.1 | lr=0.05,0.1
resnet-recipes compare --runs first 'my run' | resnet-recipes compare first 'my run'
resnet-train mild data=images checkpoint.mode=min | remove it: resnet-train trains
resnet-train mild --resume firs | resnet-train --resume first
resnet-train mild data=images train=images | data.val_share=0.1 splits a folder without val/
resnet-train mild.yaml | did you mean mild?
resnet-train mine.yaml | did you mean mine?
resnet-recipes predict first images --out p.csv --csv | \
error: unknown flag --out p.csv; did you mean --csv p.csv?
resnet-recipes predict first images --csv --out p.csv | \
error: unknown flag --out p.csv; did you mean --csv p.csv?
resnet-train --ckpt first | error: unknown flag --ckpt first; did you mean --resume first?
resnet-train --continue first | error: unknown flag --continue first; did you mean --resume first?
resnet-recipes eval first data=my new images | 'data=my new images'
resnet-recipes predict first my new images --top 1 | 'my new images'
resnet-train mild --cfg lr = 0.1 seed=1 | error: lr = 0.1
resnet-train mild --cfg lr 0.1 seed=1 | error: lr 0.1
resnet-train mild --cfg lr= 0.1 seed=1 | error: lr= 0.1
resnet-train mild --cfg lr =0.1 seed=1 | error: lr =0.1
resnet-train small images | error: images: settings are written key=value
resnet-train small images | data=images
resnet-train 'my new images' --recipe mild | 'data=my new images'
resnet-train --recipe mild data=images | error: unknown flag --recipe
resnet-train --no-such-thing mild data=images | error: unknown flag --no-such-thing
resnet-recipes runs --delete first | resnet-recipes runs rm first
resnet-recipes runs delete first | resnet-recipes runs rm first
resnet-recipes runs delete first | resnet-recipes runs rm first
resnet-recipes runs remove first | resnet-recipes runs rm first
resnet-recipes rm first | resnet-recipes runs rm first
resnet-recipes runs state=runing | state=running
resnet-recipes runs rm first --foo | --sort, --price, --yes, --json, --csv, --help
resnet-recipes methods show mixup | error: unknown method show
resnet-recipes cp hot mine | recipes/mine2.yaml
resnet-recipes methods show mixup | resnet-recipes methods mixup
resnet-recipes validate recipes/mien.yaml | resnet-recipes validate recipes/mine.yaml
"""
)


@pytest.fixture
def work_folder(image_folder: Path, tmp_path: Path) -> Path:
    for name in ("images", "my new images"):
        (tmp_path / name).symlink_to(image_folder)
    create_run_folder(tmp_path / "runs", "first")
    create_run_folder(tmp_path, "my run")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text("defaults: [hot]\n")
    return tmp_path


@pytest.fixture
def list_message_lines(run_command: Callable[..., Streams]) -> Callable[[str], list[str]]:
    """Return a function that runs a wrong command, and returns the lines without labels."""

    def lines(line: str, code: int = 2) -> list[str]:
        message = run_command(line, code).err
        advice = [
            re.sub("^(try:|use:|hint:|valid:) *", "", text.strip()) for text in message.splitlines()
        ]
        suggestions = re.findall(r"did you mean\s+(.*?)\?$", message, re.MULTILINE | re.DOTALL)
        return [*advice, *(" ".join(each.split()) for each in suggestions)]

    return lines


#: Suggestions with a placeholder, and commands whose runs would be started or that print all.
NOT_RUNNABLE = re.compile(r"[A-Z|]{2}|\.\.\.| -m |--(resume|completion|cfg)|runs rm")


def run_command_of(line: str) -> None:
    """Run the command that a line of advice consists of, if any."""
    words = shlex.split(re.split("   | > ", line)[0])
    if words[:1] == ["resnet-recipes"] and not NOT_RUNNABLE.search(line):
        assert cli.main(words[1:]) in (0, 3)  # 3: the run has no weights
    elif words[:1] == ["resnet-train"] and not NOT_RUNNABLE.search(line):
        assert cli.train([*words[1:], "--cfg"]) == 0


def compose_settings(line: str) -> None:
    """Compose mild with the settings that a line of advice consists of, if any."""
    words = shlex.split(line)
    is_setting = re.compile(r"~methods\.\w+|[a-z][\w.]*=.*").fullmatch
    if all(map(is_setting, words)) and not NOT_RUNNABLE.search(line):
        recipe = [] if line.startswith("recipe=") else ["mild"]
        assert cli.train([*recipe, *words, "--cfg"]) == 0


@pytest.mark.parametrize(("typed", "suggestion"), SETTINGS)
def test_wrong_setting_suggests_accepted_settings(
    typed, suggestion, list_message_lines, work_folder
):
    lines = list_message_lines(f"resnet-train mild data.backend=synthetic {typed}")
    assert suggestion in lines or any(line.startswith(f"{suggestion}: ") for line in lines)
    compose_settings(suggestion)


@pytest.mark.parametrize(("typed", "suggestion"), COMMANDS)
def test_wrong_command_suggests_accepted_command(
    typed, suggestion, list_message_lines, work_folder
):
    lines = [line for line in list_message_lines(typed) if suggestion in line]
    assert lines
    run_command_of(lines[0])


def test_image_folder_name_with_spaces_is_accepted(run_command, work_folder):
    (images := work_folder / "photos - all -2026").symlink_to("images")
    run_command(f"resnet-train mild 'data={images}' bs=4 batch.bn_size=4 epochs=9 --dry-run")


def test_run_shorter_than_warm_up_suggests_settings(list_message_lines, run_command, work_folder):
    line = "resnet-train mild data=images bs=4 batch.bn_size=4 lr=0.01 epochs=1"
    fix = next(text for text in list_message_lines(line) if text.startswith("schedule.warmup=0"))
    run_command(f"{line} {fix.partition(',')[0]} --dry-run")


def test_unknown_flag_is_not_suggested_as_setting(run_command):
    assert "foo=" not in run_command("resnet-recipes eval first --foo 3", 2).err


def test_setting_typed_twice_is_reported(run_command):
    note = "note: epochs=5 has no effect: a later argument changes the same setting\n"
    line = "resnet-train mild data.backend=synthetic epochs=5"
    assert note in run_command(f"{line} epochs=6 --cfg").err
    assert note not in run_command(f"{line} epochs=5 --cfg").err

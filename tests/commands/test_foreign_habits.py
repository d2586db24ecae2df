"""Suggestions for commands with habits from other tools."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures import Streams
from tests.run_folders import create_run_folder
from tests.tables import parse_rows

#: Arguments of `resnet-train mild ...`, and the suggestion.
SETTINGS = parse_rows(
    """
--batch-size 64 | bs=64
--pretrained | model.weights=torchvision
--fast-dev-run | --check
+trainer.fast_dev_run=true | --check
-v | --verbose
-m seed=1,2 --n_jobs 2 | --parallel 2
resume=true | --resume last
lr=1e-3, | lr=1e-3
trainer.max_epochs=7 | epochs=7
warmup=5ep | schedule.warmup=5ep
precision=16-mixed | precision.dtype=fp16
amp=false | precision.dtype=fp32
device=cuda:1 | CUDA_VISIBLE_DEVICES=1 resnet-train ... gpus=1
--gpu 0 | CUDA_VISIBLE_DEVICES=0 resnet-train ... gpus=1
gpu=0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
gpu=8 | gpus=8
--gpu 8 | gpus=8
gpu_ids=3 | CUDA_VISIBLE_DEVICES=3 resnet-train ... gpus=1
dropout=0.1 | methods.stochastic_depth.drop_rate=0.1
gpus=0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
gpus=-1 | gpus=auto
gpus=0 | launch.device=cpu
launch.device=mps | launch.device=cpu
--accelerator=mps | launch.device=cpu
ema=false | '~methods.ema'
--use_ema true | 'methods.ema={}'
mixup=true | 'methods.mixup={}'
ema.decay=0.999 | methods.ema.half_life=DURATION
img_size=[160,160] | data.train_size=160
log=wandb | 'log.to=[wandb]'
val_split=0.2 | data.val_share=0.2
freeze=10 | model.freeze=backbone model.weights=torchvision
freeze=none | model.freeze=none
--sync-bn | remove it
weight_decay=none | wd=0
workers 4 | workers=4
model.name=resnet-50 | model.name=resnet50
data.batch_size=64 | bs=64
schedule.warmup_epochs=5 | schedule.warmup=5ep
--min-lr 1e-6 | schedule.final=FRACTION
--crop-mode border | border is data.fit=pad, and squash is data.fit=squash
hsv_v=0.4 | methods.color_jitter.brightness=0.4 methods.color_jitter.contrast=0.4
--color-jitter-prob 0.4 | 'resnet-recipes methods' lists all methods
fliplr=0 | data.flip=false
mixup=0 | remove it: mild does not use mixup
train=images | data.val_share=0.1 splits a folder without val/
-d images | data=images
lr = 0.1 | lr=0.1
--sam | 'methods.sam={}'
blurpool=false | '~methods.blurpool'
methods=[mixup,cutmix] | 'methods.mixup={}' 'methods.cutmix={}'
methods.colout | 'methods.colout={}'
+methods/mixup=0.2 | methods.mixup.alpha=0.2
lr:0.1 | lr=0.1
wandb.project=x | WANDB_PROJECT=x resnet-train ... 'log.to=[wandb]'
--batch-sze 64 | bs=64
max_time=90 | budget=90s
--warmup_ratio 0.1 | schedule.warmup=0.1dur
log.to=[wandbb] | 'log.to=[wandb]'
log.to=none | 'log.to=[]'
--log.interval 5 | log.interval=5ba
'epochs: 5' | epochs=5
'data=images epochs=5' | data=images epochs=5
budget=20$ | launch.price=2.50
--batch-size=256 | bs=256
--data-path '/my images' | 'data=/my images'
--gpus 0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
--wandb | 'log.to=[wandb]'
--no-ema | '~methods.ema'
devices=0,1 | CUDA_VISIBLE_DEVICES=0,1 resnet-train ... gpus=2
model.lr=1 | optimizer.lr=1
"""
)

#: Complete commands, run in a folder with images, runs and a recipe, and a part of the message.
COMMANDS = parse_rows(
    """
resnet-train train mild data=images | resnet-train mild data=images
resnet-train plan mild | resnet-recipes plan mild
resnet-recipes job --for slurm data=images | resnet-recipes job small data=images --for slurm
resnet-recipes plan data=images --verbose | resnet-recipes plan small data=images --verbose
resnet-recipes job --slurm mild | --for slurm
resnet-train finetune data=images momentum=0.9 | optimizer.momentum is not a setting of adamw
resnet-train mild data=images optimizer.decay=0.1 | wd= is the weight decay, schedule.gamma=
resnet-train mild data=images schedule.time=2 | name, warmup, start
resnet-train resnet34 data=images | model.name=resnet34 data=images
resnet-recipes logs first | resnet-recipes watch first
resnet-recipes settings | resnet-train mild --cfg
resnet-recipes sweep mild seed=1,2 | resnet-train -m mild seed=1,2
resnet-train eval first | resnet-recipes eval first
resnet-train resume first | resnet-train --resume first
resnet-train list | resnet-recipes ls
resnet-train images | data=images
resnet-train mild images | data=images
resnet-train recipes/mine | recipe=recipes/mine.yaml
resnet-train config=mild | recipe=mild
resnet-train -c mild data=images | recipe=mild
resnet-train mild --evaluate | resnet-recipes eval last
resnet-train mild data=images --config-dir conf | --recipes conf
resnet-train mild data=images --ckpt 'a b.pt' | --resume 'a b.pt'
resnet-train mild data=images --epochs | epochs=VALUE
resnet-train mild data=images model.config=hot | recipe=hot
resnet-recipes eval first --csv | --csv eval.csv
resnet-recipes mild data=images | resnet-train mild data=images
resnet-recipes resume | resnet-train --resume last
resnet-recipes bottleneck mild data=x | resnet-recipes estimate mild data=x
resnet-recipes profile mild data=x | resnet-recipes estimate mild data=x
resnet-recipes fit mild | resnet-train mild
resnet-recipes new wider | resnet-recipes cp mild recipes/wider.yaml
resnet-recipes list --help | resnet-recipes ls
resnet-recipes list --help | unknown command list
resnet-recipes resume -h | resnet-train --resume last
resnet-recipes --list | resnet-recipes ls
resnet-recipes --list | unknown flag --list
resnet-recipes job --for k8s mild data=/d | did you mean kubernetes?
resnet-recipes runs finished | resnet-recipes runs state=finished
resnet-recipes runs state=done | state=finished
resnet-train mild,hot data=images epochs=5 | resnet-train -m recipe=mild,hot data=images epochs=5
resnet-train mild data=images cache=disk | cache=auto
resnet-train mild data=images cache=ram | cache=auto
resnet-train mild data=images cache=true | cache=auto
resnet-recipes eval --weights first | resnet-recipes eval first
resnet-recipes predict --source images | resnet-recipes predict last images
resnet-recipes show a b | `show a b` needs the name of one recipe
resnet-recipes export --run first --format jit | export first --to exported_program --out exported
resnet-recipes convert --src images --dst b | resnet-recipes convert images b
resnet-recipes convert --out b images --workers 2 | resnet-recipes convert images b workers=2
resnet-recipes eval --run first --batch-size 4 | resnet-recipes eval first batch.eval_size=4
resnet-recipes predict --weights first --source nowhere | resnet-recipes predict RUN|FILE
resnet-recipes predict first images --topk 3 | --top 3
resnet-recipes export first --format onnx | --to onnx
resnet-recipes runs sort=top1 | --sort top1
resnet-recipes show runs/first | recipe=runs/first/config.yaml
resnet-recipes doctor images | resnet-recipes doctor data images
resnet-recipes cp mild My-Recipe | recipes/my_recipe.yaml
resnet-train '' data=images | recipe is missing
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
resnet-recipes eval first --ema | --json, --csv, --png
resnet-recipes eval first --gallery worst.png | --gallery worst.html
resnet-recipes predict first images --out x.csv | --csv x.csv
resnet-recipes export first --to onnx --out model.onnx | --out model
resnet-recipes runs --state finished | state=finished
resnet-recipes runs --format json | --json
resnet-recipes export first --onnx --out x | --to onnx
resnet-recipes report --out report.pdf | --out report.html
resnet-recipes report --out first | --out first.html
resnet-recipes compare first last | `compare first last` needs at least two different runs
resnet-train --resume auto run=other data=images | there is no run runs/other
resnet-train images mild | data=images
resnet-recipes compare first hot | resnet-recipes diff first hot
resnet-recipes plan mild data=images --resume last | resnet-train --resume last
resnet-recipes predict --run first images | resnet-recipes predict first images
resnet-recipes predict images first | resnet-recipes predict first images
resnet-recipes predict first images runs/first | resnet-recipes predict first images
resnet-train 'mild data=images' | mild data=images is a single argument; remove the quotes
resnet-train mild data=images epochs: 5 | epochs: 5: settings are written key=value
resnet-recipes convert images images | `images` already exists
resnet-recipes convert images b write_mode=propotion | write_mode=proportion
resnet-recipes convert images b write_mode=jgp | write_mode=jpg
resnet-train mild data=images ~methods.mixpu | mild uses 
resnet-train mild data=images ~optimizer.lr | mild uses lr=2.048
resnet-train mild data=images gpus=100 | for several machines: resnet-recipes job
resnet-train mild data=images --optimizer AdamW | optimizer=adamw
resnet-recipes predict first images --conf 0.5 | --top, --csv
resnet-recipes doctor data=images | resnet-recipes doctor data images
resnet-recipes doctor data data=images | resnet-recipes doctor data images
resnet-recipes job slurm mild data=/d | --for slurm
resnet-recipes job --for slurm mild data=/d time=24h | --time 24:00:00
resnet-recipes job --engine k8s mild data=/storage/d | --for kubernetes
resnet-recipes estimate mild,hot data=/d | resnet-train -m recipe=mild,hot data=/d --dry-run
resnet-recipes job --for slurm mild hot data=/d | job -m recipe=mild,hot data=/d --for slurm
resnet-recipes estimate price=abc data=/d | --price 32.77
resnet-recipes job --for slurm mild data=/d nodes 2 | nodes=2
resnet-recipes job --for slurm mild data=/d --exclusive | sbatch --exclusive job.sh
resnet-recipes job --for torchx mild data=/d --mem 4 | set it in the file
resnet-recipes job --for slurm mild data=/d --image x | set it in the file
resnet-recipes job --for slurm mild data=/d --accelerators A100 | gpus=1
resnet-recipes eval --model first --data images | resnet-recipes eval first data=images
resnet-recipes eval --data --model first | resnet-recipes eval first
resnet-recipes predict --model first images --topk 2 | resnet-recipes predict first images --top 2
resnet-recipes export first --half | --dtype TYPE
resnet-recipes submit mild data=/d | resnet-recipes job --for slurm mild data=/d
resnet-recipes job --for slurm mild data=/d -p gpu | then: sbatch -p gpu job.sh
resnet-recipes job --for slurm mild data=/d --nodes 2 | nodes=2
resnet-recipes job --for slurm mild data=/d --gres=gpu:a100:2 | gpus=2
resnet-recipes job --for slurm mild data=/d -t 1:00:00 | --time 1:00:00
resnet-recipes predict --model first --source images | resnet-recipes predict first images
resnet-recipes eval first --verbose | --json, --csv, --png
resnet-recipes eval images | resnet-recipes eval RUN data=images
resnet-recipes predict images images/val | resnet-recipes predict RUN images
resnet-train export model=first format=onnx | export first --to onnx --out exported
resnet-recipes export model=first format=onnx | export first --to onnx --out exported
resnet-recipes export first --to int8 --out x | --to onnx --dtype int8
resnet-recipes export first --to pth --out x | --to torchvision
resnet-recipes predict model=first source=images | resnet-recipes predict first images
resnet-recipes plan mild nodes=2 | as in gpus=16
resnet-train val model=first data=images | resnet-recipes eval first data=images
resnet-train finetune data=images data.val_share=20 | data.val_share=0
resnet-recipes export first onnx | resnet-recipes export first --to onnx --out exported
resnet-recipes export first --to timm --out x --push me/it | --push hf:me/it
resnet-recipes ls mild | resnet-recipes show NAME
resnet-train --list mild | resnet-recipes show NAME
resnet-train --list mild data=x | resnet-recipes show NAME
resnet-recipes predict images | resnet-recipes predict last images
resnet-recipes predict images/val/pattern0/1.jpg | predict last images/val/pattern0/1.jpg
resnet-recipes predict nowhere.JPG | resnet-recipes predict last nowhere.JPG
resnet-recipes predict junk.pth | resnet-recipes predict junk.pth IMAGE
resnet-recipes classify first | resnet-recipes predict first IMAGE
resnet-train predict data=images | resnet-recipes predict RUN IMAGE
resnet-train val data=images | resnet-recipes eval last data=images
resnet-train eval data=images | resnet-recipes eval last data=images
resnet-train validate data=images | resnet-recipes eval last data=images
resnet-train validate recipes/mine.yaml | resnet-recipes validate recipes/mine.yaml
resnet-train tune | resnet-train finetune data=PATH -m lr=0.003,0.01
resnet-train tune lr=1,2 data=images | resnet-train finetune -m ...
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
"""
)

#: Commands with several mistakes, and a part of each message.
SEVERAL = parse_rows(
    """
resnet-train --batch-size 64 data=images | bs=64 | recipe is missing
resnet-train train --data-path images | unknown command train | data=images | recipe is missing
resnet-train smal data=images --lr high | did you mean small? | must be a number
resnet-train smal data=images lr=high | did you mean small? | must be a number
resnet-train mild --epochs 3 | epochs=3 | data is missing
resnet-train mild --config mine.yml.yaml data=images | did you mean recipe= | does not exist
resnet-recipes test --weights X --data Y | resnet-recipes eval ... | eval X data=Y | data=Y
resnet-recipes job --for slurm mild data=/d --mem 32G --time 2h | sbatch --mem 32G | --time 2:00:00
resnet-recipes job -m recipe=mild,midl data=/d | --for is missing | did you mean mild?
resnet-recipes copy mild | resnet-recipes cp ... | resnet-recipes cp mild recipes/mine.yaml
resnet-recipes export --to onnx | FILE is missing: a run folder | --out is missing
resnet-train mild data=images lr 0.1 bs 64 | lr=0.1 | bs=64
resnet-train mild data=images schedule.milestones=[30,60] | schedule.name=multistep | =[30ep,60ep]'
resnet-train small data=images model.name=timm:convnext_tiny | model.stem=standard | model.width=1.0
"""
)


@pytest.fixture
def work_folder(image_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "images").symlink_to(image_folder)
    create_run_folder(tmp_path / "runs", "first")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text("defaults: [hot]\n")
    return tmp_path


@pytest.fixture
def list_message_lines(run_command: Callable[..., Streams]) -> Callable[[str], list[str]]:
    def lines(line: str) -> list[str]:
        message = run_command(line, 2).err
        advice = [
            re.sub("^(try:|use:|hint:|valid:) *", "", text.strip()) for text in message.splitlines()
        ]
        suggestions = re.findall(r"did you mean\s+(.*?)\?$", message, re.MULTILINE | re.DOTALL)
        return [*advice, *(" ".join(each.split()) for each in suggestions)]

    return lines


@pytest.mark.parametrize(("typed", "suggestion"), SETTINGS)
def test_settings_of_other_programs_suggest_ours(
    typed, suggestion, list_message_lines, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    lines = list_message_lines(f"resnet-train mild data.backend=synthetic {typed}")
    assert suggestion in lines or any(line.startswith(f"{suggestion}: ") for line in lines)


@pytest.mark.parametrize(("typed", "suggestion"), COMMANDS)
def test_commands_of_other_programs_suggest_ours(
    typed, suggestion, list_message_lines, work_folder
):
    assert any(suggestion in line for line in list_message_lines(typed))


@pytest.mark.parametrize("name", ["mild", "mine"])
def test_missing_recipe_file_suggests_existing_recipe(name, run_command, work_folder):
    assert f"; did you mean {name}?\n" in run_command(f"resnet-train {name}.yaml", 2).err


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_mistakes_are_reported_at_once(case, list_message_lines, work_folder):
    typed, *suggestions = case
    lines = list_message_lines(typed)
    assert f"error: {len(suggestions)} problems" in lines
    assert all(any(suggestion in line for line in lines) for suggestion in suggestions)


@pytest.mark.parametrize("flags", ["--out p.csv --csv", "--csv --out p.csv"])
def test_file_of_two_flags_is_one_problem(flags, list_message_lines, work_folder):
    lines = list_message_lines(f"resnet-recipes predict first images {flags}")
    assert lines[0] == "error: unknown flag --out p.csv; did you mean --csv p.csv?"


@pytest.mark.parametrize("flag", ["--ckpt", "--continue"])
def test_flag_that_means_resume_needs_no_recipe(flag, list_message_lines, work_folder):
    (line, *_) = list_message_lines(f"resnet-train {flag} first")
    assert line == f"error: unknown flag {flag} first; did you mean --resume first?"


@pytest.mark.parametrize(
    "typed", ["eval first data=my new images", "predict first my new images --top 1"]
)
def test_path_split_at_spaces_suggests_quotes(typed, list_message_lines, work_folder):
    Path("my new images").symlink_to("images")
    lines = list_message_lines(f"resnet-recipes {typed}")
    assert lines[1] == f"'{'data=' * ('data=' in typed)}my new images'"


@pytest.mark.parametrize("typed", ["lr = 0.1", "lr 0.1", "lr= 0.1", "lr =0.1"])
def test_setting_split_by_spaces_is_one_problem(typed, list_message_lines):
    assert " problems" not in list_message_lines(f"resnet-train mild --cfg {typed} seed=1")[0]


def test_image_folder_name_with_spaces_is_accepted(run_command, work_folder):
    (images := work_folder / "photos - all -2026").symlink_to("images")
    run_command(f"resnet-train mild 'data={images}' bs=4 batch.bn_size=4 epochs=9 --dry-run")


def test_image_folder_without_setting_is_one_problem(list_message_lines, work_folder):
    lines = list_message_lines("resnet-train small images")
    assert lines[:2] == ["error: images: settings are written key=value", "data=images"]


def test_image_folder_before_recipe_flag_suggests_the_command(list_message_lines, work_folder):
    lines = list_message_lines("resnet-train images --recipe mild epochs=3")
    assert "resnet-train mild epochs=3 data=images" in lines
    Path("my images").mkdir()
    lines = list_message_lines("resnet-train 'my images' --recipe mild")
    assert "resnet-train mild 'data=my images'" in lines


@pytest.mark.parametrize("flag", ["--recipe", "--no-such-thing"])
def test_recipe_after_unknown_flag_is_not_missing(flag, list_message_lines, work_folder):
    assert " problems" not in list_message_lines(f"resnet-train {flag} mild data=images")[0]


def test_run_shorter_than_warm_up_suggests_settings(list_message_lines, run_command, work_folder):
    line = "resnet-train mild data=images bs=4 batch.bn_size=4 lr=0.01 epochs=1"
    fix = next(text for text in list_message_lines(line) if text.startswith("schedule.warmup=0"))
    run_command(f"{line} {fix.partition(',')[0]} --dry-run")


def test_setting_typed_twice_is_reported(run_command):
    note = "note: epochs=5 has no effect: a later argument changes the same setting\n"
    line = "resnet-train mild data.backend=synthetic epochs=5"
    assert note in run_command(f"{line} epochs=6 --cfg").err
    assert note not in run_command(f"{line} epochs=5 --cfg").err

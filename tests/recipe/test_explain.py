"""Suggestions for rejected settings of a recipe with changes."""

import re

import pytest

from resnet_recipes.base.errors import Hint, Kind
from resnet_recipes.recipe.compose import compose
from tests.shared.checks import get_recipe_error
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("text", "fixed"),
    parse_rows(
        """
schedule: {name: step} | schedule: {name: multistep, milestones: [0.33dur,0.67dur]}
max_steps: 100 | max_duration: 100ba; ssr: 1
model: {weights: False} | model: {weights: '', freeze: none, freeze_bn: false}
"""
    ),
)
def test_mistake_in_a_file_suggests_several_valid_lines(text, fixed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(f"{text}\n")
    (problem,) = get_recipe_error("mine.yaml").problems
    inside = re.sub(r"^\w+: \{(.*)\}$", r"\1", fixed)
    assert problem.corrections == tuple(re.split(r"; |, (?=[a-z_]+:)", inside))
    (tmp_path / "mine.yaml").write_text(fixed.replace("; ", "\n"))
    compose("mine.yaml", needs_data=False)


def test_mistake_in_a_file_is_quoted_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "optimizer: lamb\nmethods: {ema: false}\nlaunch: {device: mps, gpus: all}\n",
    )
    message = str(get_recipe_error("mine.yaml"))
    assert "optimizer: {name: lamb}" in message
    assert "ema: null" in message
    assert "Apple GPUs are not supported" in message
    assert "use:   gpus: auto" in message


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    parse_rows(
        """
optimizer=lamb optimizer.epss=1e-6 | did you mean optimizer.eps=1e-6?
optimizer.beta=0.9 | did you mean optimizer.momentum=0.9?
optimizer=lamb optimizer.beta=[0.9,0.9] | did you mean 'optimizer.betas=[0.9,0.9]'?
freeze=10 model.weights=timm:resnet50.a1_in1k | did you mean model.freeze=backbone?
optimizer=lamb lr=high | mild uses lr=0.005
seed=3 seed=x | mild uses seed=42
log=null | its settings: interval, to; {} for their defaults
methods=none | {} for their defaults
schedule.name=step schedule.milestones=[30ep] | use:   schedule.name=multistep
"""
    ),
)
def test_suggestion_is_found_in_recipe_or_options(arguments, suggestion):
    message = str(get_recipe_error("mild", *arguments.split()))
    assert f"{suggestion}\n" in f"{message}\n"


@pytest.mark.parametrize("argument", ["methods.ema=[]", "model.args=[1]"])
def test_suggested_sweeps_have_valid_runs(argument):
    assert "-m" not in str(get_recipe_error("mild", argument))


@pytest.mark.parametrize("value", ["0.1,x", "0.9,0.1", "2,3"])
def test_rejected_list_is_not_suggested(value):
    message = str(get_recipe_error("mild", f"data.crop_scale={value}"))
    assert "hint:  mild uses 'data.crop_scale=[0.08,1.0]'" in message
    assert "use:" not in message


def test_overridden_wrong_reference_does_not_hide_wrong_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text("seed: ${optimizer.lrate}\n")
    message = str(get_recipe_error("mine", "seed=1", "bs=x"))
    assert "batch.global_size=x" in message


@pytest.mark.parametrize(
    ("typed", "fix"),
    parse_rows(
        """
opt=adamw | optimizer=adamw
opt_betas=[0.9,0.95] | optimizer=adamw 'optimizer.betas=[0.9,0.95]'
decay_milestones=[30,60] | schedule=step 'schedule.milestones=[30ep,60ep]'
time_limit=600 | budget=600s
time=2 | budget=2h
auto_augment=ta_wide | 'methods.trivial_augment={}'
cos_lr=true | schedule=cosine
cutout=0.5 | methods.random_erasing.p=0.5
hours=2 | budget=2h
tensorboard=true | 'log.to=[tensorboard]'
model.name=hf:microsoft/resnet-50 | model.name=resnet50
input_shape=[224,224,3] | data.train_size=224 data.eval_size=224
+methods.mixup | 'methods.mixup={}'
optimizer.name=adam | optimizer=adamw
save_best=true | checkpoint.best=top1
recovery_interval=1000 | checkpoint.interval=1000ba
num_labels=3 | model.num_classes=auto
device_train_microbatch_size=auto | batch.bn_size=auto
batch=0.6 | batch.bn_size=auto
mixed_precision=float8 | precision.dtype=bf16
bce_target_thresh=0.2 | methods.bce_loss.threshold=0.2
bias_weight_decay=0 | optimizer.no_decay=one_dimensional
data.cache_ram=true | cache=auto
autoresume=true | --resume auto
aa=rand-m9-mstd0.5 | methods.randaugment.severity=9 methods.randaugment.depth=2
aa=rand-m7-n3 | methods.randaugment.severity=7 methods.randaugment.depth=3
aa=rand | 'methods.randaugment={}'
!methods.ema | '~methods.ema'
no_ema | '~methods.ema'
no_ema=true | '~methods.ema'
methods.ema=disabled | '~methods.ema'
methods.ema=never | '~methods.ema'
~ema | '~methods.ema'
"""
    ),
)
def test_supported_settings_of_other_tools_suggest_ours(typed, fix):
    (problem,) = get_recipe_error("mild", typed).problems
    assert [problem.format_fix(text) for text in problem.corrections] == [fix]


@pytest.mark.parametrize(
    "typed",
    """
bn_momentum=0.1
bn_eps=1e-3
split_bn=true
lr_noise=0.4
color_jitter_prob=0.8
mixup_prob=0.8
optim.top_k=3
optim.peft=lora
unfreeze=true
nbs=64
gp=avg
multi_scale=true
precision.tf32=true
evaluation.k=3
model.head=mlp
methods.lora={}
methods.grad_cam={}
methods.progressive_unfreezing={}
optimizer.layer_decay=0.75
methods.swa={}
methods.focal_loss={}
data.rotation=15
gradient_accumulation_steps=2
kd_model_name=resnet101
min_lr=1e-5
crop_pct=0.95
opt=muon
in_chans=4
scale=0.5
""".strip().splitlines(),
)
def test_unsupported_settings_of_other_tools_suggest_none(typed):
    (problem,) = get_recipe_error("mild", typed).problems
    assert problem.corrections == ()
    assert problem.kind is Kind.UNKNOWN
    assert problem.advice or problem.valid


def test_unsupported_tracker_lists_supported_ones():
    (problem,) = get_recipe_error("mild", "log=trackio").problems
    assert problem.corrections == ()
    assert problem.valid == ("tensorboard", "wandb", "mlflow", "csv")


def test_pretrained_with_typed_weights_is_removed():
    (problem,) = get_recipe_error("mild", "model.pretrained=true", "model.weights=w.pth").problems
    assert problem.advice == (Hint("remove it: model.weights=w.pth is set"),)


@pytest.mark.parametrize(
    ("typed", "fix"),
    parse_rows(
        """
lr==0.1 | lr=0.1
lr=0.1, | lr=0.1
lr='0.1 | lr=0.1
optimizer:lr=0.1 | lr=0.1
optimizer=torch.optim.SGD | optimizer=sgd
ep=5 | epochs=5
pretrained | model.weights=torchvision
weight_decay=0 | wd=0
data.val_share=20 | data.val_share=0.2
schedule.name=onecycle | schedule=cosine
schedule.name=step | schedule.name=multistep 'schedule.milestones=[0.33dur,0.67dur]'
checkpoint.best=true | checkpoint.best=top1
run=2024/05/01 | run=2024-05-01
budget=20usd | 'budget=$20'
budget=1h30m | budget=90m
methods.MixUp={} | 'methods.mixup={}'
"""
    ),
)
def test_typing_error_suggests_the_intended_setting(typed, fix):
    (problem,) = get_recipe_error("mild", typed).problems
    assert problem.format_fix(problem.corrections[0]) == fix


@pytest.mark.parametrize(
    "typed",
    """
data.labels=labels.csv
methods.randaugment.magnitude=9
methods.mixup.a=0.2
test=images/val
run=.
mean=[0.5,0.5,0.5]
max_samples=100
budget=overnight
""".strip().splitlines(),
)
def test_setting_of_other_meaning_suggests_none(typed):
    (problem,) = get_recipe_error("mild", typed).problems
    assert problem.corrections == ()


@pytest.mark.parametrize("typed", ["methods.ema=", "methods.ema=-1", "methods=", "methods=[]"])
def test_ambiguous_switch_suggests_neither_on_nor_off(typed):
    (problem,) = get_recipe_error("mild", typed).problems
    assert problem.corrections == ()
    assert problem.advice


@pytest.mark.parametrize(
    ("text", "fix"),
    parse_rows(
        """
learning-rate: 0.1 | lr
data: {lr: 0.1} | lr: 0.1
+lr: 1 | lr
methods: [mixup, ema] | methods: {mixup: {}, ema: {}}
methods: {mixup: 0.2} | mixup: {alpha: 0.2}
methods: {mixup: false} | mixup: null
schedule: {warmup: 5} | warmup: 5ep
extends: hot | defaults: [hot]
inherit: [hot] | defaults: [hot]
_base_: hot | defaults: [...]
early_stopping: 5 | checkpoint: {best: top1}
recipe: hot | defaults: [hot]
train: {epochs: 5} | epochs: 5
train: {lr: 0.1} | lr: 0.1
trainer: {precision: 16-mixed} | precision: {dtype: auto}
optimizer: {wd: 0.1} | weight_decay: 0.1
optimizer: adam | optimizer: {name: adamw}
schedule: step | schedule: {name: multistep, milestones: [0.33dur,0.67dur]}
batch_size: 32 | bs: 32
algorithms: {ema: {half_life: 9ba}} | methods: {ema: {half_life: 9ba}}
lr-warmup-epochs: 5 | schedule: {warmup: ...}
optimizer: SGD(lr=0.1) | optimizer: {name: sgd}
schedule: {type: cosine} | name: cosine
defaults: [_self_, mild] | defaults: [mild]
batch: {eval: 512} |
metrics: [accuracy] |
batch: {global_size: -1} | global_size: 2048
layer_decay: 0.7 |
resume: true |
"""
    ),
)
def test_recipe_file_mistake_suggests_yaml(text, fix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(f"{text}\n")
    (problem,) = get_recipe_error("mine.yaml").problems
    assert [problem.format_fix(text) for text in problem.corrections] == ([fix] if fix else [])
    assert problem.advice or problem.valid


def test_wrong_optimizer_does_not_hide_other_mistakes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("optimizer: {name: adam, learning_rate: 0.1}\n")
    name, rate = get_recipe_error("mine.yaml").problems
    assert (name.corrections, rate.corrections) == (("name: adamw",), ("lr: 0.1",))

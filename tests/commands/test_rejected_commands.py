"""Rejected commands print the reason and set an exit code; they write and start nothing."""

import re
import sys
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.shared.checks import check_text
from tests.shared.disk_faults import limit_file_size
from tests.shared.plans import TINY
from tests.shared.tables import parse_rows

#: Commands of `resnet-recipes` in a folder with the run `mine` and its images in `images`.
#: After the command: its exit code, parts of its message, and after `!` texts that are not in it.
REJECTED = [
    *parse_rows(
        """
eval mine evaluation.sizes=192,224 | 2 | 'evaluation.sizes=[192,224]'
eval mine lr=1 | 2 | error: lr=1 is a setting of training | hint:  remove it
eval mine data.eval_size=big | 2 | error: data.eval_size=big must be a whole number
eval mine data.eval_size=4 | 2 | data.eval_size=4 must be between 8 and 1,024
eval mine/weights.safetensor | 3 | did you mean mine/weights.safetensors?
eval resnet18 | 3 | `resnet18` does not exist; did you mean torchvision:resnet18?
eval mine data=/nowhere | 3 | data=/nowhere does not exist
report --output out.pdf | 2 | --output out.pdf must end in .html | use:   --out out.html
report --out . | 2 | use:   --out out.html
report --p 3 | 2 | valid: --out, --price, --published, --png
eval mine --csv /nowhere/x.csv | 3 | mkdir -p /nowhere
export mine --to keras | 2 | valid: torchvision
export mine --to timm --out new | 2 | support blurpool
export mine --to safetensors --with-preprocessing --out new | 2 | --to onnx
export mine --to torchscript --out new | 2 | is deprecated by torch, and exported_program is
predict mine /nowhere.jpg | 3 | /nowhere.jpg does not exist
predict mine images/val/pattern0/1.jpeg | 3 | images/val/pattern0/1.jpg
predict mine /nowhere/*.jpg | 3 | no file matches this
predict mine images --json --csv x.csv | 2 | remove one of them
predict mine mine | 2 | is a second run; pass one run, then images | hint:  resnet-recipes
predict mine images top=2 | 2 | error: unknown setting top=2; did you mean --top 2?
predict mine images launch.device=cuda | 3 | launch.device=cuda: torch sees no GPU
predict mine images data.val_share=0.1 | 2 | cannot be changed here
job --for slurm -m mild data=/data gpus=1,2 | 2 | all jobs of an array must request the same GPUs
job --for slurm mild data=/data nodes=2 launch.max_restarts=1 | 2 | works on one node only
job --for slurm mild data=/data launch.nodes=2 | 2 | job --for slurm NAME data=PATH nodes=2
job --for slurm -m mild data=/data --parallel 0 | 2 | --parallel 0 must be a whole number from 1
job --for slurm mild data=/data --parallel 2 | 2 | --parallel 2 is only for a sweep
job --for slurm data=/data | 2 | recipe is missing
job --for slurm hot data=/data --time 2:00 | 2 | --time 2:00 must be at least 5 minutes
job mild --for skypilott | 2 | unknown engine skypilott; did you mean skypilot?
job mild data=/s --storage s3://b --for kubernetes | 2 | --storage s3://b is a bucket
job mild data=/s --storage s3://b --for torchx | 2 | is only for skypilot and kubernetes
job mild data=/s --storage s3://b --for skypilot run.root=/a | 2 | run.root=/a is set by the job
job mild data=/data nodes=2 --for torchx run.root=here | 2 | must be an absolute path that
plan mild epochs=curve | 2 | resnet-train -m trains
plan recipe=mild,hot | 2 | resnet-train -m recipe=mild,hot
runs runs state=done | 2 | valid: finished, running
eval first --csv --images | 2 | --csv eval.csv | --images images.csv
runs rm . --yes | 3 | is not a run folder
runs rm recipe=hot --yes | 2 | deletes runs by name, without filters
stop mine | 3 | is prepared at epoch 0.00
train demo run=last | 2 | is reserved for the most recent run
train hot methods.mixup.alpha=-1 data=x | 2 | hot uses methods.mixup.alpha=0.25
train mild methods.sam.interval=0 data=x | 2 | remove it: mild does not use sam
train demo --overwrite | 2 | resnet-recipes runs rm
train demo data.root=' ' | 2 | data.root=  is empty
convert . '' | 2 | DST= is empty
doctor data '' | 2 | PATH= is empty
cp mild '' | 2 | FILE= is empty
eval '' | 2 | RUN|FILE= is empty
predict mine '' | 2 | IMAGE= is empty
report '' | 2 | RUN= is empty
train demo data=. budget=99999999h | 2 | budget=99999999h is longer than ten years
train demo data=. run.extends=typo | 2 | run.extends=typo: there is no run
job mild data=/d run.extends=typo --for slurm | 2 | run.extends=typo: there is no run
train mild data=x -m seed=1,2 --check | 2 | remove -m
plan recipe=mild,medium seed=1,2 | 2 | error: mild,medium: a run uses one recipe
train mild data=x --resume auto --check | 2 | remove --resume
train -m mild data=x seed=1,2 --json | 2 | --json needs --dry-run or --list
train -m mild data=x ~methods.ema, | 2 | ~methods.: only a method
train --completion csh | 2 | valid: bash, zsh, fish
estimate data=/nowhere --price | 2 | error: --price needs a value
estimate data=/nowhere --reach 78 --within 2h | 2 | --within 2h already sets the duration
estimate data=/nowhere --sample 5 | 2 | --sample needs one recipe | use:   recipe=mild
estimate mild data=/nowhere --within 2h --again | 2 | --again needs one recipe, without --within
estimate data=/nowhere --within $20 | 2 | --price is missing: an amount such as $20 needs | \
hint:  --price PER_HOUR
runs --csv /proc/r.csv | 3 | cannot be written: no file can be created in /proc
report --published --out no/r.html | 3 | --out no/r.html cannot be written
train recipe=~nosuchuser/a.yaml | 2 | ~nosuchuser is not a user of this machine
train --recipes ~nosuchuser recipe=mild | 2 | ~nosuchuser is not a user of this machine
train --resume ~nosuchuser/run | 2 | ~nosuchuser is not a user of this machine
train recipe=mild data=~nosuchuser | 2 | ~nosuchuser is not a user of this machine
train recipe=mild data=/ run.root=~nosuchuser | 2 | ~nosuchuser is not a user of this machine
train recipe=hot --cfg hydra | 2 | Hydra itself cannot be configured here
doctor data s3://b/x | 2 | aws s3 sync s3://b/x local
doctor data . --fix-val s3://b/x | 2 | only local files and folders can be read here
'' | 2 | error: unknown command
doctor /nowhere | 3 | error: `/nowhere` does not exist
doctor dta | 2 | unknown topic dta; did you mean data?
doctor imges | 2 | unknown topic imges; did you mean data?
doctor cuda | 2 | unknown topic cuda; did you mean gpu?
doctor gpu a b | 2 | `doctor gpu` takes no argument
doctor --fix-val map | 2 | needs the folder whose val/ has no class folders
convert a b quality=90 | 2 | unknown option quality=90
train -m recipe=mild,medium data=/nowhere | 3 | does not exist | !concerns only
train -m mild data=x lr=[1,2] | 2 | use:   -m lr=1,2
train mild data=x epochs=2,x | 2 | a sweep | hint:  mild uses epochs=36
train mild data=x 'crop_scale=0.25;1' | 2 | hint:  data.crop_scale must be a list, as in [a, b]
train mild data=x budget=0h | 2 | budget=0h must be positive
cp hot My-own.yaml | 2 | recipes/my_own.yaml
evaluate best.pth | 2 | unknown command evaluate
eval best.pth | 3 | a run (`resnet-recipes runs` lists them), a checkpoint
train recipe= | 2 | recipe= is missing
train recipe=../x | 2 | unknown recipe ../x
train recipe=/etc/passwd | 2 | recipe files end in .yaml
train mild '' data=/data | 2 | '' is empty
train Mild data=/data | 2 | unknown recipe Mild; did you mean mild?
train -m mild data=/data seed=interval(1,2) | 2 | seed=interval(1,2) | no list of values
train -m mild data=/data seed=range(0,1000000000) | 2 | the maximum is 1,000
train mild --describe | 2 | --describe needs a value
train recipe=mild --recipes nowhere | 2 | --recipes nowhere is not a folder
train --resume auto | 2 | no unfinished run
train mild data=/data +foo=1 | 2 | unknown setting foo=1
train mild data=/data ~data.root | 2 | only a method or a setting of the optimizer can be removed
train mild data=/data ~optimizer.lr | 2 | ~optimizer.lr cannot be removed
train mild data=/data ~methods.emma | 2 | unknown method
train mild data=/data lr=${oc.env:HOME} | 2 | references are only read from recipe files
train mild data=/data lr | 2 | settings are written key=value
train mild data=/data epochs=1e9 | 2 | mild uses epochs=36
train mild data=/data seed=010 | 2 | seed=010 must be a whole number
train mild data=/data max_duration=1.5ba | 2 | a whole number of batches
report --png mine | 2 | --png mine is a run | try:   resnet-recipes report mine --png plots
eval mine data=images/val/pattern0 | 3 | is the folder of one class | use:   data=images/val
train finetune images/val/pattern0 | 2 | use:   data=images | !data=images/
eval mine data=. | 3 | has classes that the network does not have: | use:   data=images
eval mine data=mine | 3 | mine has no images in class folders | !use:
eval no workers=x | 2 | use:   workers=auto
export mine --to pt --out o | 2 | use:   --to safetensors | !--to torchvision
export mine --to onnx --out mine/config.yaml/a | 3 | mine/config.yaml is a file | !writing
export mine --to onnx --out new data=nope | 3 | error: data=nope does not exist
export mine --to onnx --out new data=mine | 3 | mine has no images
export mine --to onnx --out new --dtype int4 | 2 | --dtype int4
export mine --to onnx --out new --lose half | 2 | --lose half
export mine --to onnx --out new --lose -1 | 2 | --lose -1
export mine --to onnx --out new --dtype float16 --with-preprocessing | 2 | --with-preprocessing
predict mine - | 3 | images are read from files, not from a pipe
job --for slurm | 2 | try:   resnet-recipes job --for slurm hot data=/data/imagenet
job --for torchx mild data=/s seed=1,2 | 2 | seed=1,2 must be one value | only slurm has job arrays
job --for slurm mild data=/set --time 2 | 2 | --time 2 is in minutes, and must be at least 5 | \
use:   --time 2:00:00
plan | 2 | error: recipe is missing
plan mild launch.device=cuda budget=1h | 3 | error: budget=1h: the time is unknown without a GPU; \
`resnet-recipes estimate` measures it on the GPU machine | \
hint:  use epochs= instead of budget= | !use:
plan mild gpus=8 budget=1h | 3 | use:   epochs=75 | at the published speed, 25.3 min for 32 epochs
plan mild gpus=8 budget=6m | 3 | !use:
plan mild gpus=8 budget=80000h | 3 | !use:
plan finetune gpus=8 budget=1h | 3 | unknown without a GPU | instead of budget= | !published
report runs my.html --price 3 | 2 | `my.html` is a page, not a run | use:   --out my.html
train demo --resume nothere | 2 | --resume nothere does not exist | !resnet-train --resume nothere
train mine data=no --recipes nodir | 2 | error: --recipes nodir is not a folder | !problems
train finetun data.backend=synthetic lr=fast | 2 | hint:  finetune uses lr=0.01
train small data=images run=mine2 | 2 | bs=128 in the recipe is more than the 10 training images | \
use:   bs=8 lr= | !resnet-train
train mild data=images gpus=64 bs=2048 | 2 | use:   gpus=1 bs=8
job mine/config.yaml data=/s --storage s3://b --for skypilot | 2 | is a file on this machine
watch | 2 | hint:  resnet-recipes watch RUN
stop | 2 | hint:  resnet-recipes stop RUN
validate nope.yaml | 2 | error: `nope.yaml` does not exist | !try:
doctor data . --fix | 2 | error: unknown flag --fix | valid: --no-images, 
doctor data . data.val_share=0.2 | 2 | settings only with --network | !takes one folder
doctor gpu gpu/0 | 2 | gpu/0: `doctor gpu` takes no argument
doctor native x y | 2 | x y: `doctor native` takes no argument
doctor run x y | 2 | `doctor run` takes one folder | hint:  resnet-recipes doctor run PATH
doctor run nowhere | 3 | `nowhere` does not exist
estimate data=x --within 3h budget=2h | 2 | error: --within 3h: budget=2h already sets the duration
estimate data=x --within 3h epochs=5 | 2 | error: --within 3h: epochs=5 already sets the duration
estimate data=x --reach 78 budget=2h | 2 | error: --reach 78: budget=2h already sets the duration
estimate data=x --reach 78 epochs=5 | 2 | error: --reach 78: epochs=5 already sets the duration
estimate data=x --within=2x | 2 | use:   --within 2h
estimate data=x --within=-3h | 2 | use:   --within 3h
estimate data=x --within=0.5 | 2 | use:   --within 0.5h
estimate data=x --within=90 | 2 | use:   --within 90h
"""
    ),
    (f"train mild {TINY} run.root=mine/config.yaml/runs", "3", "is a file"),
    (f"train mild {TINY} run.root=mine/config.yaml/runs --dry-run", "3", "is a file"),
    (f"train -m mild {TINY} lr=-1 seed=1,2 --dry-run", "2", "error: lr=-1 must be", "!problems"),
    ("train mild data=/data seed=" + "9" * 5000, "2", "must be one line of at most 4,096"),
    ("train mild data=/data 'x=\x1b[2J'", "2", "must be one line"),
    ("job --for slurm hot data=/data --time '1:00\n#SBATCH -a 9'", "2", "must be a time limit"),
    ("job --for slurm hot data=/caf\udce9", "2", "error: data=/caf\\xe9 is not UTF-8"),
]


@pytest.fixture(autouse=True)
def _forbid_starting_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "resnet_recipes.jobs.ranks.launcher.start", lambda *_: pytest.fail("a run was started")
    )


@pytest.mark.parametrize("row", REJECTED, ids=lambda row: row[0])
def test_rejected_command_prints_reason_and_writes_nothing(row, request, tmp_path, run_command):
    arguments, code, *parts = row
    if re.search(r"\b(mine|images)\b", arguments):
        request.getfixturevalue("folder_with_weights")
    before = set(tmp_path.rglob("*"))
    out, err = run_command(f"resnet-recipes {arguments}", int(code))
    assert (out, set(tmp_path.rglob("*"))) == ("", before)
    check_text(err, parts)


@pytest.mark.parametrize(
    ("text", "place"),
    parse_rows("""
defaults: [mild]\\noptimizer:\\n  lrr: 1.7 | recipes/mine.yaml:3: unknown setting
defaults: [mildd] | recipes/mine.yaml:1: unknown recipe mildd; did you mean mild?
defaults: [../../etc/passwd] | recipes/mine.yaml:1: defaults=[../../etc/passwd] must
defaults: [_self_, mild] | recipes/mine.yaml:1: defaults=[_self_, mild]: _self_ must
defaults: [mine] | recipes/mine.yaml:1: defaults lead in a circle
name: [mine | recipes/mine.yaml:1 is not YAML
name: &a mine | recipes/mine.yaml:1: &a: anchors and aliases are not used
# @package _global_\\nname: mine | recipes/mine.yaml:1: # @package _global_ is an
optimizer: 5 | recipes/mine.yaml:1: optimizer=5: optimizer is a section
about: !!python/object/apply:os.system ['touch pwned'] | os.system: tags are not used in recipes
"""),
)
def test_rejected_recipe_file_is_reported_with_line(text, place, recipes, run_command):
    (recipes / "mine.yaml").write_text(text.replace("\\n", "\n"))
    message = run_command("resnet-train recipe=mine data=/data", 2).err
    assert place in message
    assert [*Path().iterdir()] == [recipes]


def test_output_folder_is_rejected_before_the_work(folder_with_weights, run_command):
    Path("old.csv").mkdir()
    message = run_command("resnet-recipes eval mine --csv old.csv", 3).err
    assert message.startswith("error: --csv old.csv cannot be written: it is a folder\n")
    assert "use:   --csv old2.csv" in message


@pytest.mark.parametrize("arguments", ["eval mine --csv new.csv", "convert images new.beton"])
def test_command_reports_file_size_limit_with_fix(
    folder_with_weights, run_command, arguments, monkeypatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python 3.11 would leave a partial file
    with limit_file_size(100):
        message = run_command(f"resnet-recipes {arguments}", 3).err
    fix = (
        "error: a file would be larger than allowed\n  if sizes are limited:  ulimit -f unlimited\n"
    )
    assert message.endswith(fix)
    assert not [
        path for path in folder_with_weights.parent.iterdir() if path.suffix in (".csv", ".beton")
    ]


@pytest.mark.parametrize(
    "address",
    [
        "https://me:s3cret@host/x",
        "https://host:80/x?token=s3cret",
        "https://me:s3/cret@host/x",
        "s3://bucket/x#s3cret",
        f"https://me:{600 * 's3cret'}@host/x",
    ],
)
def test_secrets_in_addresses_are_masked(capsys, address):
    for argv in (
        ["plan", "mild", f"data={address}"],
        ["plan", "mild", f"dta={address}"],
        ["plan", "mild", address],
        ["convert", address, "out"],
        ["eval", address],
        ["train", "mild", "--data", address],
        [address],
    ):
        assert cli.main(argv) == 2
        message = capsys.readouterr().err
        assert "***" in message
        assert "cret" not in message

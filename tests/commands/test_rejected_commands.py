"""Rejected commands print the reason and set an exit code; they write nothing else."""

import sys
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.disk_faults import limit_file_size
from tests.tables import parse_rows

STORED = "job mild data=/storage/set --storage s3://bucket --for"

#: Command, exit code, and a part of the message.
REJECTED = parse_rows(
    f"""
eval RUN evaluation.sizes=[4] | 2 | must be between 8 and 1,024 pixels
eval RUN evaluation.sizes=192,224 | 2 | 'evaluation.sizes=[192,224]'
eval RUN imgsz=32 | 2 | data.eval_size=32
eval RUN evaluation.sizes=[a] | 2 | evaluation.sizes
eval RUN lr=1 | 2 | error: lr=1 is a setting of trainingEOL      hint:  remove itEOL
eval RUN data.eval_size=big | 2 | error: data.eval_size=big must be a whole number
eval RUN data.eval_size=4 | 2 | data.eval_size
eval RUN/nothing | 3 | does not exist
eval resnet18 | 3 | `resnet18` does not exist; did you mean torchvision:resnet18?
eval RUN data=/nowhere | 3 | data=/nowhere does not exist
eval RUN --gallery RUN | 2 | must end in .html
report --out . | 2 | use:   --out out.html
report --png RUN | 2 | is a run; pass a folder for plots
eval RUN --csv /nowhere/x.csv | 3 | mkdir -p /nowhere
export | 2 | --to is missing
export RUN --to onnx | 2 | --out is missing
export RUN --to keras | 2 | valid: torchvision
export RUN --to onnx --out RUN | 2 | exists
export RUN --to timm --out NEW | 2 | support blurpool
export RUN --to safetensors --with-preprocessing --out NEW | 2 | --to onnx
export RUN --to torchscript --out NEW | 2 | is deprecated by torch, and exported_program is
export RUN --to TorchScript --out NEW | 2 | --to exported_program
predict | 2 | IMAGE is missing
predict RUN /nowhere.jpg | 3 | /nowhere.jpg does not exist
predict RUN IMAGES/val/pattern0/1.jpeg | 3 | images/val/pattern0/1.jpgEOL
predict RUN /nowhere/*.jpg | 3 | no file matches this
predict RUN IMAGES --top 0 | 2 | must be a whole number from 1
predict RUN IMAGES --json --csv x.csv | 2 | remove one of them
predict RUN RUN | 2 | is a second run; pass one run, then imagesEOL      hint:  resnet-recipes
predict RUN IMAGES gpus=3 | 2 | cannot be changed hereEOL      hint:  remove itEOL
predict RUN IMAGES top=2 | 2 | error: unknown setting top=2; did you mean --top 2?
predict RUN IMAGES data.eval_size=8 data.eval_resize=4 | 2 | error: data.eval_resize=4 must be
predict RUN IMAGES launch.device=cuda | 3 | launch.device=cuda: torch sees no GPU
export RUN --to onnx --out NEW launch.device=cuda | 2 | launch.device=cuda cannot be changed here
export RUN --to onnx --out NEW precision.dtype=bf16 | 2 | cannot be changed here
export RUN --to onnx --out NEW precision.kernels=off | 2 | cannot be changed here
predict RUN IMAGES data.val_share=0.1 | 2 | cannot be changed here
job --for slurm -m mild,hott data=/data lr=1,-1 | 2 | 2 problems
job --for slurm -m mild data=/data gpus=1,2 | 2 | all jobs of an array must request the same GPUs
job --for slurm mild data=/data nodes=1:2 | 2 | nodes=1:2 must be a whole number from 1
job --for slurm mild data=/data nodes=2 launch.max_restarts=1 | 2 | works on one node only
job --for slurm mild data=/data launch.nodes=2 | 2 | job --for slurm NAME data=PATH nodes=2
job --for slurm -m mild data=/data --parallel 0 | 2 | --parallel 0 must be a whole number from 1
job --for slurm mild data=/data --parallel 2 | 2 | --parallel 2 is only for a sweep
job --for slurm hot data=/data run=mine | 2 | is set by the job
job --for slurm hot data=/data lrr=1 | 2 | lrr=1
job --for slurm data=/data | 2 | recipe is missing
job --for slurm hot data=/caf\udce9 | 2 | error: data=/caf\\xe9 is not UTF-8
job --for slurm hot data=/data --time soon | 2 | must be a time limit as Slurm accepts
job --for slurm hot data=/data --time '1:00:00EOL#SBATCH --array=0-9' | 2 | must be a time limit
job --for slurm hot data=/data --time 2:00 | 2 | --time 2:00 must be at least 5 minutes
job mild --for skypilott | 2 | unknown engine skypilott; did you mean skypilot?
{STORED} skypilot nodes=2 | 2 | --storage s3://bucket is a bucket
{STORED} kubernetes | 2 | --storage s3://bucket is a bucket
{STORED} torchx | 2 | --storage s3://bucket is only for skypilot and kubernetes
{STORED} skypilot -m --time 3:00:00 | 2 | 2 problems
{STORED} skypilot run.root=/a | 2 | run.root=/a is set by the job
job mild data=here --for skypilot | 2 | 2 problems
job mild data=/data nodes=2 --for torchx run.root=here | 2 | must be an absolute path that
train mild epochs=36,72 data=x | 2 | means several durations: a sweep
train mild epochs=curve data=x | 2 | means several durations: a sweep
train mild --parallel 2 data=x | 2 | works only with a sweep
plan mild seed=1,2 | 2 | resnet-train -m trains
plan mild epochs=curve | 2 | resnet-train -m trains
plan recipe=mild,hot | 2 | resnet-train -m recipe=mild,hot
runs runs --price 1e6 | 2 | --price 1e6 must be a price per hour
runs runs --price nan | 2 | --price nan must be a price per hour
runs runs epochs=3 | 2 | unknown filter epochs=3
runs runs state=done | 2 | valid: finished, running
runs rm . --yes | 3 | is not a run folder
stop RUN | 3 | is not running
train demo run=last | 2 | is reserved for the most recent run
train mild methods.mixup.alpha=-1 data=x | 2 | remove it: mild does not use mixup
train hot methods.mixup.alpha=-1 data=x | 2 | '~methods.mixup'
train mild methods.sam.interval=0 data=x | 2 | remove it: mild does not use sam
train mild no_mixup data=x | 2 | remove it: mild does not use mixup
train demo --overwrite | 2 | resnet-recipes runs rm
train demo channels_last=false | 2 | precision.channels_last=false
train demo data= | 2 | data= is empty (is a shell variable unset?)EOL      hint:  data=PATHEOL
train demo data.root=' ' | 2 | data.root=  is empty
train demo data=. run.root= | 2 | run.root= is empty
train -m demo data= seed=1,2 | 2 | data= is empty
job mild data= --for slurm | 2 | data= is empty
estimate mild data= | 2 | error: data= is empty
convert '' out | 2 | SRC= is empty (is a shell variable unset?)
convert . '' | 2 | DST= is empty
doctor data '' | 2 | PATH= is empty
cp mild '' | 2 | FILE= is empty
eval '' | 2 | RUN|FILE= is empty
eval RUN data= | 2 | data= is empty
predict RUN '' | 2 | IMAGE= is empty
report '' | 2 | RUN= is empty
train demo data=. launch.max_wall=99999999h | 2 | max_wall=99999999h is longer than ten years
train demo data=. budget=99999999h | 2 | budget=99999999h is longer than ten years
train demo data=. run.extends=typo | 2 | run.extends=typo: there is no run
job mild data=/d run.extends=typo --for slurm | 2 | run.extends=typo: there is no run
train mild data=x budget=2m epochs=3 | 2 | budget=2m: epochs=3 already sets the duration
train mild data=x budget=2m ssr=2 | 2 | budget=2m: ssr=2 already sets the duration
train mild data=x budget=2m max_duration=3ep | 2 | budget=2m: max_duration=3ep already sets
train mild data=x -m seed=1,2 --check | 2 | remove -m
plan recipe=mild,medium seed=1,2 | 2 | error: mild,medium: a run uses one recipe
train mild data=x --resume auto --check | 2 | remove --resume
train -m mild data=x seed=1,2 --dry-run --json | 2 | --json prints the plan of one run
train -m mild data=x seed=1,2 --parallel=0 | 2 | --parallel=0 must be a whole number
train -m mild data=x seed=1,2 --parallel=1000000 | 2 | --parallel=1000000 must be a whole number
train -m mild,hott data=x seed=1,2 lr=1,-1 | 2 | 3 problemsEOLEOL  lr=-1 must be
train -m mild data=x ~methods.ema, | 2 | ~methods.: only a method
train --completion csh | 2 | valid: bash, zsh, fish
estimate mild data=/nowhere --price abc | 2 | must be a price per hour
estimate mild data=/nowhere --sample=1 | 2 | must be a whole number from 2
train mild recipe=none.yaml data=x | 2 | recipe=none.yaml does not exist
train none.yaml data=x | 2 | `none.yaml` does not exist
train -m none.yaml data=x seed=1,2 | 2 | `none.yaml` does not exist
estimate data=/nowhere --price | 2 | error: --price needs a value
estimate data=/nowhere --reach 0.8 | 2 | --reach 80
estimate data=/nowhere --reach 0.001 | 2 | --reach 78
estimate data=/nowhere --reach 0.78 | 2 | must be a percentage, as in 78
estimate data=/nowhere --reach 78 --within 2h | 2 | --reach
estimate data=/nowhere --within $20 | 2 | --price is missing: an amount such as $20
watch . | 3 | is not a run folder
watch a b | 2 | `watch a b` needs one run
runs /nowhere | 3 | does not exist
runs --csv /proc/r.csv | 3 | cannot be written: no file can be created in /proc
report --published --out no/r.html | 3 | --out no/r.html cannot be written
train recipe=~nosuchuser/a.yaml | 2 | ~nosuchuser is not a user of this machine
train --recipes ~nosuchuser recipe=mild | 2 | ~nosuchuser is not a user of this machine
train --resume ~nosuchuser/run | 2 | ~nosuchuser is not a user of this machine
train --resume auto run.root=~nosuchuser | 2 | ~nosuchuser is not a user of this machine
train recipe=mild data=~nosuchuser | 2 | ~nosuchuser is not a user of this machine
train recipe=mild data=/ run.root=~nosuchuser | 2 | ~nosuchuser is not a user of this machine
train recipe=hot --cfg hydra | 2 | Hydra itself cannot be configured here
doctor data s3://b/x | 2 | aws s3 sync s3://b/x local
doctor data . --fix-val s3://b/x | 2 | only local files and folders can be read here
doctor dta | 2 | unknown topic dta; did you mean data?
doctor imges | 2 | unknown topic imges; did you mean data?
doctor cuda | 2 | unknown topic cuda; did you mean gpu?
doctor data | 2 | doctor
doctor gpu a b | 2 | doctor
doctor --fix-val map | 2 | doctor
convert s3://b/x y | 2 | aws s3 sync s3://b/x local
convert . s3://b/x | 2 | is an address, but only local files
convert a b shufle=true workers=x | 2 | did you mean shuffle=true?
convert a b shufle=true workers=x | 2 | workers=x must be a whole number
convert im=g out=b workers=1 | 3 | `im=g` does not exist
convert im=g max_resoltion=500 | 2 | needs SRC and DST
convert a b quality=90 | 2 | unknown option quality=90
train mild data=x --json | 2 | use:   --dry-run
train -m recipe=mild,hot data=x lr=abc,1 | 2 | lr=abc must be
train -m mild data=x lr=[1,2] | 2 | use:   -m lr=1,2
train mild,hott | 2 | error: unknown recipe hott; did you mean hot?EOL
train mild data=x lr=0.1,wd=3 | 2 | lr=0.1,wd=3 must be a numberEOL      hint:  mild uses lr=2.048
train mild data=x lr=0,5 | 2 | use:   lr=0.5EOL
train mild data=x epochs=2,x | 2 | a sweepEOL      hint:  mild uses epochs=36
train mild data=x seed=[1,x] | 2 | hint:  mild uses seed=42
train mild data=x lr=2^-3 | 2 | lr=2^-3 must be a numberEOL      hint:  mild uses lr=2.048
train mild data=x 'crop_scale=0.25;1' | 2 | hint:  data.crop_scale must be a list, as in [a, b]
train mild data=x ... gpus=2 | 2 | is a placeholder, not an argument
train mild data=x budget=0h | 2 | budget=0h must be positive
cp hot mine.txt | 2 | must end in .yaml
cp hot My-own.yaml | 2 | recipes/my_own.yaml
cp hott a.yaml | 2 | did you mean hot?
evaluate best.pth | 2 | unknown command evaluate
compare a | 3 | error: `a` does not exist
eval best.pth | 3 | a run (`resnet-recipes runs` lists them), a checkpoint
"""
)


@pytest.mark.parametrize(("arguments", "code", "message"), REJECTED)
def test_rejected_command_prints_reason_and_writes_nothing(
    arguments, code, message, request, tmp_path, run_command
):
    run = request.getfixturevalue("folder_with_weights") if "RUN" in arguments else Path("none")
    values = {"RUN": run, "IMAGES": run.parent / "images", "NEW": tmp_path / "new", "EOL": "\n"}
    for name, value in values.items():
        arguments = arguments.replace(name, str(value))
        message = message.replace("EOL", "\n")
    before = set(tmp_path.rglob("*"))
    out, err = run_command(f"resnet-recipes {arguments}", int(code))
    assert (out, set(tmp_path.rglob("*"))) == ("", before)
    assert message in err


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
def test_secrets_in_addresses_are_masked_in_print(capsys, address):
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

"""A command reports all its problems of different kinds at once."""

import re
from pathlib import Path

import pytest

from tests.shared.images import create_random_images
from tests.shared.run_folders import create_run_folder

#: Commands, run in a folder with images and the runs a, b, c (damaged) and d (stopped); the exit
#: code unless it is 2; and the first line of each problem.
MESSAGES = """
$ resnet-train demo data=no model.weights=no.pth launch.device=cuda run=a
  data=no does not exist
  model.weights=no.pth does not exist
  launch.device=cuda: torch sees no GPU on this machine
  run=a is taken: runs/a already exists
$ resnet-train demo model.weights=no.pth run=a
  model.weights=no.pth does not exist
  run=a is taken: runs/a already exists
$ resnet-train demo data=images lr=-1 run.extends=b2
  lr=-1 must be positive and below 10,000
  run.extends=b2: there is no run runs/b2
$ resnet-train demo data=images lr=-1 run=a gpus=8 methods.distill={}
  lr=-1 must be positive and below 10,000
  methods.distill.teacher is missing: name a trained network
  gpus=8: torch sees no GPU on this machine
  run=a is taken: runs/a already exists
$ resnet-train demo data=images budget=2hours ssr=-1 run=a
  ssr=-1 must be above 0 and at most 1,000
  budget=2hours must be a time (2h, 90m, 45s) or an amount ('$20')
  budget=2hours: ssr=-1 already sets the duration
  run=a is taken: runs/a already exists
$ resnet-train finetune data=images lr=-1 run=a
  lr=-1 must be positive and below 10,000
  run=a is taken: runs/a already exists
$ resnet-train finetune data=images bs=64 run=a
  bs=64 is more than the 10 training images in images, so an epoch has no steps
  run=a is taken: runs/a already exists
$ resnet-train demo data=images/train lr=-1 seed=x --dry-run
  seed=x must be a whole number
  lr=-1 must be positive and below 10,000
  data=images/train is one split; use the folder containing train/ and val/
$ resnet-train demmo data=no run=a lr=-1 --verbse
  unknown flag --verbse; did you mean --verbose?
  unknown recipe demmo; did you mean demo?
  lr=-1 must be positive and below 10,000
  data=no does not exist
  run=a is taken: runs/a already exists
$ resnet-train budget=1h data=no run=a
  data=no does not exist
  run=a is taken: runs/a already exists
$ resnet-train demo --cfg --dry-run --json lr=-1
  --json cannot be used with --cfg
  lr=-1 must be positive and below 10,000
$ resnet-recipes plan demo data=images lr=-1 --no-plan
  --no-plan is a flag of resnet-train
  lr=-1 must be positive and below 10,000
$ resnet-recipes estimate demo data=images --check lr=-1
  --check is a flag of resnet-train
  lr=-1 must be positive and below 10,000
$ resnet-train mild data=images schedule=multistep schedule.milestones=[3ep] lr=-1
  unknown schedule multistep; did you mean step?
  lr=-1 must be positive and below 10,000
$ resnet-recipes plan demo data=images lr=-1 --dry-run
  --dry-run is a flag of resnet-train
  lr=-1 must be positive and below 10,000
$ resnet-train --list --cfg --resume x
  --cfg cannot be used with --list
  --resume cannot be used with --list
$ resnet-train --check --resume auto demo lr=-1
  --check tries one new run
  lr=-1 must be positive and below 10,000
$ resnet-train --parallel 2 --json demo data=no lr=-1
  --parallel 2 works only with a sweep
  --json needs --dry-run or --list
  lr=-1 must be positive and below 10,000
  data=no does not exist
$ resnet-train demo lr=\u22121 ... data=x\u00a0seed=3 #
  lr=\u22121 contains a typographic minus
  ... is a placeholder, not an argument
  data=x\\xa0seed=3 contains a no-break space
  # starts a comment, but the shell has passed it on
$ resnet-train --batch-size 64 data=images
  unknown flag --batch-size 64; did you mean bs=64?
  recipe is missing
$ resnet-train train --data-path images
  unknown command train
  unknown flag --data-path images; did you mean data=images?
  recipe is missing
$ resnet-train images --model resnet18 --epochs 3 --opt adamw lr=-1
  unknown flag --model resnet18; did you mean model.name=resnet18?
  unknown flag --epochs 3; did you mean epochs=3?
  unknown flag --opt adamw; did you mean optimizer=adamw?
  `images` is a folder, not a recipe
  lr=-1 must be positive and below 10,000
$ resnet-train --config mine.yml --opt adamw
  unknown flag --config mine.yml; did you mean recipe=mine.yml?
  unknown flag --opt adamw; did you mean optimizer=adamw?
  `mine.yml` does not exist
$ resnet-recipes eval --checkpoint best
  --checkpoint best is not a flag here
  `best` does not exist
$ resnet-train demo data=images --epochs -1 --lr -0.1
  --epochs -1 must be a positive number of epochs, or a duration such as 400ba (steps)
  --lr -0.1 must be positive and below 10,000
$ resnet-train smal data=images --lr high
  --lr high must be a number
  unknown recipe smal; did you mean small?
$ resnet-train mild --config mine.yml.yaml data=images
  unknown flag --config mine.yml.yaml; did you mean recipe=mine.yml.yaml?
  `mine.yml.yaml` does not exist
$ resnet-train mild data=images schedule.milestones=[30,60]
  schedule.milestones=[30,60] is for multistep, and the schedule is cosine
  schedule.milestones=[30, 60] must be a number and a unit: 8ep, 100ba or 0.5dur
$ resnet-train small data=images model.name=timm:convnext_tiny
  model.stem=small is for resnet18, resnet34, resnet50, resnet101, resnet152
  model.width=0.5 is for resnet18, resnet34, resnet50, resnet101, resnet152
$ resnet-train recipe = mild lr= 0.1 bs =3
  recipe = mild: settings are written key=value
  lr= 0.1: settings are written key=value
  bs =3: settings are written key=value
  data is missing: pass a folder of images, or a table of paths and labels
$ resnet-train --resume d lr=3 gpus=8
  lr=3 differs from the run, which uses 2
  data=/data/pets does not exist
  gpus=8: torch sees no GPU on this machine
  runs/d cannot be resumed: no checkpoint in runs/d/checkpoints can be used
$ resnet-train --resume d gpus=8  [exit 3]
  data=/data/pets does not exist
  gpus=8: torch sees no GPU on this machine
$ resnet-train --resume a demo seed=3 workers=2 --foo foo=1
  unknown flag --foo
  `demo`: --resume names the run, and a run keeps its recipe
  unknown setting foo=1
  seed=3 differs from the run, which uses 1
$ resnet-train mild data=images --a{b} 3 --{} {0}
  unknown flag --a{b} 3
  unknown flag --{} {0}
$ resnet-train --resume no --foo --lr
  --resume no does not exist
  unknown flag --foo
  unknown flag --lr
$ resnet-train --extend no lr=-1 --foo
  --extend no does not exist
  unknown flag --foo
  lr=-1 must be positive and below 10,000
$ resnet-train -m recipe=demo,hott lr=0.1,fast,-1 seed=1,2 data=no
  lr=fast must be a number
  data=no does not exist
  lr=-1 must be positive and below 10,000
  unknown recipe hott; did you mean hot?
$ resnet-train -m demo data=images run=a lr=-1,0.1 --parallel 999
  run=a names one run, but a sweep names its own
  --parallel 999 must be a whole number from 1 to 2
  lr=-1 must be positive and below 10,000
$ resnet-train -m demo data=images run=a bs=64,2 gpus=8
  run=a names one run, but a sweep names its own
  gpus=8: torch sees no GPU on this machine
$ resnet-train -m demo data=images bs=64,2 gpus=8
  bs=64 is more than the 10 training images in images, so an epoch has no steps
  gpus=8: torch sees no GPU on this machine
  bs=2 must be divisible by 8, the number of devices
$ resnet-train -m demo data=images,no bs=64,1
  bs=64 is more than the 10 training images in images, so an epoch has no steps
  data=no does not exist
$ resnet-train -m demo lr=0.1,0.2 run=a --resume auto --foo
  run=a names one run, but a sweep names its own
  --resume cannot be used with -m: the same command continues a sweep
  unknown flag --foo
$ resnet-recipes estimate demo data=no launch.device=cuda  [exit 3]
  data=no does not exist
  launch.device=cuda: torch sees no GPU on this machine
$ resnet-recipes estimate demo data=no lr=-1 --price x --sample y --reach 300
  --price x must be a price per hour
  --sample y must be a whole number from 2 to 9,999
  --reach 300 must be a percentage up to 100
  lr=-1 must be positive and below 10,000
  data=no does not exist
$ resnet-recipes plan demo data=no lr=-1 run=a
  lr=-1 must be positive and below 10,000
  data=no does not exist
  run=a is taken: runs/a already exists
$ resnet-recipes predict no no.jpg images/no data.eval_size=x --top 0 --foo
  --top 0 must be a whole number from 1 to 9,999
  unknown flag --foo
  `no` does not exist
  no.jpg does not exist
  images/no does not exist
  data.eval_size=x must be a whole number
$ resnet-recipes eval no workers=x foo=1 --png x.txt
  --png x.txt must end in .png
  `no` does not exist
  unknown setting foo=1
  workers=x must be auto or between 0 and 256
$ resnet-recipes eval runs/a runs/b  [exit 3]
  runs/a has no weights.safetensors
  runs/b has no weights.safetensors
$ resnet-recipes export no --to onx --out images --dtype x --push x --foo
  --to onx is not valid
  --out images already exists, and nothing is overwritten
  --dtype x is not valid
  --push x must name a repository
  unknown flag --foo
  `no` does not exist
$ resnet-recipes export no --format onx --output images
  --format onx is not valid
  --output images already exists, and nothing is overwritten
  `no` does not exist
$ resnet-recipes export --to onnx
  RUN|FILE is missing: a run folder, a checkpoint or a weights file
  --out is missing
$ resnet-recipes teach small data=images bs=8 --top 0 --cycle x --out images
  --top 0 must be a whole number from 1 to 9,999
  --cycle x must be a whole number from 0 to 9,999
  --out images must end in .safetensors
  methods.random_translation changes the images of each batch, \
so that stored soft labels do not match them
  methods.distill.teacher is missing: name a trained network
$ resnet-recipes teach demo data=images bs=8 methods.distill.teacher=no --top x
  --top x must be a whole number from 1 to 9,999
  methods.distill.teacher=no does not exist
$ resnet-recipes job --for slurm mild data=/d run=last2 lr=-3 nodes=0 --time x
  run=last2 is set by the job, which names the run
  nodes=0 must be a whole number from 1 to 9,999
  --time x must be a time limit as Slurm accepts it
  lr=-3 must be positive and below 10,000
$ resnet-recipes job --for slrum mild data=/d --time x
  unknown engine slrum; did you mean slurm?
  --time x must be a time limit as Slurm accepts it
$ resnet-recipes job mild data=/d --time x
  --for is missing
  --time x must be a time limit as Slurm accepts it
$ resnet-train --list --verbose --jsn
  --verbose cannot be used with --list
  unknown flag --jsn; did you mean --json?
$ resnet-train finetune data=no --recipes nodir
  --recipes nodir is not a folder
  data=no does not exist
$ resnet-recipes job -m recipe=mild,midl data=/d
  --for is missing
  unknown recipe midl; did you mean mild?
$ resnet-recipes job mild data=/storage/x --storage s3://y --for skypilot -m --time 3:00:00
  --time 3:00:00 is only for Slurm
  -m is only for Slurm
$ resnet-recipes job mild data=here --for skypilot
  --storage is missing: the storage that keeps the runs when the machines are gone
  data=here must be an absolute path on the machines of the job
$ resnet-recipes report no --price x --out images/x.txt --foo
  --price x must be a price per hour
  --out images/x.txt must end in .html
  unknown flag --foo
  `no` does not exist
$ resnet-recipes report no images/a.txt a  [exit 3]
  `no` does not exist
  images/a.txt is not a run folder
$ resnet-recipes report c --price x
  --price x must be a price per hour
  runs/c: config.yaml is not YAML: did not find expected node content
$ resnet-recipes compare no images c  [exit 3]
  `no` does not exist
  images is not a run folder
  runs/c: config.yaml is not YAML: did not find expected node content
$ resnet-recipes convert no images foo=1 shuffle=x --bar
  unknown flag --bar; did you mean on_bad_image=error?
  unknown option foo=1
  shuffle=x must be true or false
  `no` does not exist
$ resnet-recipes doctor data no lr=1 --foo
  lr=1: `doctor` takes settings only with --network
  unknown flag --foo
  `no` does not exist
$ resnet-recipes runs no images/a.txt  [exit 3]
  `no` does not exist
  images/a.txt is not a run folder
$ resnet-recipes runs no --sort x foo=1 --price y --foo
  --sort x is not valid
  --price y must be a price per hour
  unknown flag --foo
  unknown filter foo=1
  `no` does not exist
$ resnet-recipes runs state=foo name= recipe=
  state=foo is not valid
  name= is empty (is a shell variable unset?)
  recipe= is empty (is a shell variable unset?)
$ resnet-recipes runs rm no d --foo
  unknown flag --foo
  `no` does not exist
$ resnet-recipes show demmo --foo
  unknown flag --foo
  unknown recipe demmo; did you mean demo?
$ resnet-recipes methods mixupp --foo
  unknown method mixupp; did you mean mixup?
  unknown flag --foo
$ resnet-recipes cp no images --foo
  unknown flag --foo
  unknown recipe no
  `images` must end in .yaml and be named with lower-case letters, digits and '_'
$ resnet-recipes copy mild
  unknown command copy
  `cp mild` needs a recipe and a file
$ resnet-recipes ls --csv ~nobodyx/x.csv mild
  --csv ~nobodyx/x.csv: ~nobodyx is not a user of this machine
  mild: the list of recipes takes no name
$ resnet-recipes diff mildd a --foo
  unknown flag --foo
  unknown recipe or run mildd; did you mean mild?
$ resnet-recipes stop no --foo
  unknown flag --foo
  `no` does not exist
$ resnet-recipes watch images --foo
  images is not a run folder
  unknown flag --foo
$ resnet-recipes validate images --foo
  images is a folder, not a recipe
  unknown flag --foo
$ resnet-train mild data=images gpus=64 bs=2048
  bs=2048 is more than the 10 training images in images, so an epoch has no steps
  gpus=64: torch sees no GPU on this machine
$ resnet-train mild data=images gpus=2 bs=2 model.name=resnet18 model.weights=none.pt  [exit 3]
  model.weights=none.pt does not exist
  gpus=2: torch sees no GPU on this machine
$ resnet-recipes validate nope.yaml --bogus
  unknown flag --bogus
  `nope.yaml` does not exist
$ resnet-recipes estimate data=x --within 2 --reach 101
  --reach 101 must be a percentage up to 100
  --within 2 must be a time (2h, 90m, 45s) or an amount ('$20')
  --reach 101: --within 2 already sets the duration
$ resnet-recipes test --weights X --data Y
  unknown command test
  --weights X is not a flag here
  unknown flag --data Y; did you mean data=Y?
"""


def list_cases() -> list[tuple[str, int, list[str]]]:
    """Return each command, its exit code, and the first lines of its problems."""
    cases = []
    for case in MESSAGES.split("\n$ ")[1:]:
        head, *problems = [line.strip() for line in case.splitlines()]
        line, _, code = head.partition("  [exit ")
        cases.append((line, int(code.rstrip("]") or 2), problems))
    return cases


@pytest.mark.parametrize(("line", "code", "problems"), list_cases())
def test_command_reports_all_problems_at_once(run_command, monkeypatch, line, code, problems):
    monkeypatch.setenv("COLUMNS", "200")
    create_random_images(Path("images"))
    create_run_folder(Path("runs"), "a")
    create_run_folder(Path("runs"), "b")
    create_run_folder(Path("runs"), "d", state="stopped")
    Path("images/a.txt").touch()
    Path(create_run_folder(Path("runs"), "c"), "config.yaml").write_text("{")
    err = run_command(line, code).err
    assert re.findall(r"(?m)^  (\S.*)", err) == problems, err
    assert err.startswith(f"error: {len(problems)} problems\n"), err

"""A command reports all problems of different kinds at once."""

from pathlib import Path

import pytest

from tests.images import create_random_images
from tests.run_folders import create_run_folder
from tests.tables import parse_rows

ROWS = """
train demo data=no model.weights=no.pth launch.device=cuda run=a | 2 | data model launch run
train demo data=images model.weights=no.pth run=a bs=8 | 2 | model run
train demo model.weights=no.pth run=a | 2 | model run
estimate demo data=no launch.device=cuda | 3 | data launch
train demo data=no lr=-1 foo=2 model.weights=no.pth | 2 | data lr unknown model
train -m recipe=demo lr=0.1,fast seed=1,2 data=no | 2 | lr data
train demo lr=-1 seed=x | 2 | lr seed
predict no no.jpg data.eval_size=x --top 0 | 2 | `no` no.jpg data.eval_size --top
eval no workers=x foo=1 | 2 | `no` workers unknown
eval runs/a runs/b | 3 | runs/a runs/b
teach small data=images bs=8 --top 0 --cycle x | 2 | --top --cycle methods.random methods.distill
job --for slurm mild data=/d run=last2 lr=-3 foo=1 | 2 | run lr unknown
train demo data=no --verbse | 2 | unknown data
train demo data=images/train lr=-1 --dry-run | 2 | lr data=images/train
train demo data=images/val data.val_share=0 lr=-1 | 2 | lr data=images/val
train --resume d lr=3 gpus=8 | 2 | lr data gpus runs/d
train --resume d gpus=8 | 3 | data gpus
train budget=1h data=images lr=-1 run=a | 2 | lr run
train --resume a seed=3 workers=2 foo=1 | 2 | seed unknown
train --resume a demo seed=3 --foo | 2 | `demo` seed unknown
train --resume no --foo --lr | 2 | --resume unknown unknown
train --parallel 2 --json demo data=no lr=-1 | 2 | --parallel --json data lr
predict no no.jpg images/no --top x --foo | 2 | `no` no.jpg images/no --top unknown
export no --format onx --output images | 2 | `no` --format --output
train demo --cfg --dry-run --json lr=-1 | 2 | --json lr
train --list --cfg --resume x | 2 | --cfg --resume
export no --to onx --out images --dtype x --push x --foo | 2 | `no` --to --out --dtype --push unk
report no --price x --out images/x.txt --foo | 2 | `no` --price --out unknown
convert no images foo=1 shuffle=x --bar | 2 | `no` unknown shuffle unknown
doctor data no lr=1 --foo | 2 | `no` lr=1 unknown
estimate demo data=no lr=-1 --price x --sample y --reach 300 | 2 | data lr --price --sample --reach
job --for slurm mild nodes=0 lr=-1 --time x --foo | 2 | nodes data lr --time unknown
teach small lr=-1 data=images --top 0 --cycle x --out images | 2 | lr --top --cycle --out
train --check --resume auto demo lr=-1 | 2 | --check lr
runs no --sort x foo=1 --price y --foo | 2 | `no` --sort unknown --price unknown
train -m demo lr=0.1,0.2 run=a --resume auto --foo | 2 | run=a --resume unknown
show demmo --foo | 2 | unknown unknown
methods mixupp --foo | 2 | unknown unknown
cp no images --foo | 2 | `images` unknown unknown
eval no data.eval_size=x --png x.txt --foo | 2 | `no` data.eval_size --png unknown
train demo data=images lr=-1 run=a gpus=8 methods.distill={} | 2 | lr run gpus methods.distill
train demo data=no run=a gpus=8 methods.distill={} | 2 | data run gpus methods.distill
train demo data=images lr=-1 run.extends=b2 --dry-run | 2 | lr run.extends
plan demo data=no lr=-1 run=a | 2 | lr data run
train demo data=no bs=-1 --dry-run | 2 | bs data
train demmo data=no run=a lr=-1 | 2 | unknown lr data run
train -m demo data=images run=a lr=-1,0.1 --parallel 999 | 2 | run --parallel lr
train -m demo data=images run=a bs=64,2 gpus=8 | 2 | run bs=64 bs=2 gpus
train demmo data=no | 2 | unknown data
train -m demo data=images,no bs=64,1 | 2 | bs=64 data=no
train demo data=images budget=2hours ssr=-1 run=a | 2 | budget budget ssr run
estimate demo data=no methods.mixup.alpha=x --foo | 2 | data methods unknown
ls --csv ~nobodyx/x.csv --foo | 2 | --csv unknown
ls mild --foo | 2 | mild unknown
diff mildd a --foo | 2 | unknown unknown
compare no a --foo | 2 | `no` unknown
compare no images c | 3 | `no` images runs/c:
report no a c.txt | 3 | `no` `c.txt`
report c --price x | 2 | runs/c: --price
report no images/a.txt a | 3 | `no` images/a.txt
runs no images/a.txt | 3 | `no` images/a.txt
stop no --foo | 2 | `no` unknown
stop a --foo | 2 | runs/a unknown
watch no --foo | 2 | `no` unknown
runs rm no d --foo | 2 | `no` unknown
train --resume no lr=-1 | 2 | --resume lr
train --extend no lr=-1 --foo | 2 | --extend lr unknown
train budget=1h data=no run=a | 2 | data run
watch images --foo | 2 | images unknown
validate images --foo | 2 | images unknown
train -m demo data=images seed=1,2 run=a --foo | 2 | run=a unknown
train demo lr=\u22121 ... data=x\u00a0seed=3 # | 2 | lr= ... data=x #
"""


@pytest.mark.parametrize(("line", "code", "subjects"), parse_rows(ROWS))
def test_command_reports_all_problems_at_once(run_command, line, code, subjects):
    create_random_images(Path("images"))
    create_run_folder(Path("runs"), "a")
    create_run_folder(Path("runs"), "b")
    create_run_folder(Path("runs"), "d", state="stopped")
    Path("images/a.txt").touch()
    Path(create_run_folder(Path("runs"), "c"), "config.yaml").write_text("{")
    err = run_command(f"resnet-recipes {line}", int(code)).err
    assert err.startswith(f"error: {len(subjects.split())} problems\n")
    assert all(f"\n  {subject}" in err for subject in subjects.split())


def test_hint_before_network_is_open_names_the_default(run_command):
    err = run_command("resnet-recipes eval no workers=x", 2).err
    assert "hint:  the default is workers=auto\n" in err


def test_same_mistake_in_two_files_is_two_problems(run_command):
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text("defaults: [mild]\nbatch: {global_size: -1}\n")
    err = run_command("resnet-recipes validate a.yaml b.yaml", 2).err
    assert "a.yaml:2: batch.global_size=-1" in err
    assert "b.yaml:2: batch.global_size=-1" in err


def test_misspelled_recipe_is_checked_as_the_likely_one(run_command):
    err = run_command("resnet-train finetun data.backend=synthetic lr=fast", 2).err
    assert "hint:  finetune uses lr=0.01\n" in err

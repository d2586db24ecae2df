"""Golden messages of wrong commands; `python -m tests.commands.test_error_messages` writes them."""

import re
import tempfile
from pathlib import Path

import pytest

from tests.commands.golden import run_line, work_in
from tests.images import create_random_images
from tests.run_folders import create_run_folder

GOLDEN = Path(__file__).parents[1] / "golden/error_messages.txt"

#: Commands for a folder with images, a run, and two folders without training images.
LINES = """
resnet-train
resnet-train mild
resnet-train mild data=images/train --dry-run
resnet-train mild data=nowhere
resnet-train mild data=/nope/x
resnet-train mild data=empty
resnet-train mild data=one
resnet-train mild data=images/train/pattern0/0.jpg
resnet-train mild data=junk.pth
resnet-train data=images
resnet-train data=lonely
resnet-train mild data=ftp://host/images --dry-run
resnet-train mild.yaml data=images
resnet-train mild hot data=images
resnet-train hott data=images
resnet-train mild,hot data=images
resnet-train mild data=images --lr 0.1 --dry-run
resnet-train mild data=images lr 0.1 --dry-run
resnet-train mild data=images --epochs=30 --dry-run
resnet-train mild data=images +lr=1 --dry-run
resnet-train mild data=images 'lr=1, 2' --dry-run
resnet-train mild data=images lr=-1 --dry-run
resnet-train mild data=images lr=fast --dry-run
resnet-train mild data=images epoch=10 --dry-run
resnet-train mild data=images epochs=ten --dry-run
resnet-train mild data=images epochs=0 --dry-run
resnet-train demo data=images bs=8 epochs=3 epochs=4 max_duration=5ep --dry-run
resnet-train mild data=images seed=1,2 --dry-run
resnet-train mild data=images batch_size=64 --dry-run
resnet-train mild data=images bs=100 --dry-run
resnet-train mild data=images bs=10000 --dry-run
resnet-train mild data=images workers=-1 --dry-run
resnet-train mild data=images gpus=8
resnet-train mild data=images launch.device=cuda
resnet-train mild data=images optimizer=adam --dry-run
resnet-train mild data=images optimizer.momentun=0.9 --dry-run
resnet-train mild data=images schedule.warmup=5 --dry-run
resnet-train demo data=images bs=8 schedule.warmup=100ep --dry-run
resnet-train mild data=images methods.mixup --dry-run
resnet-train mild data=images methods.mixup=0.2 --dry-run
resnet-train mild data=images methods.mixup.alpha=high --dry-run
resnet-train mild data=images optimizer.betas=0.9 --dry-run
resnet-train demo data=images bs=8 methods.mixup={} methods.cutmix={} --dry-run
resnet-train mild data=images methods.dropout=0.5 --dry-run
resnet-train mild data=images methods.ema.decay= --dry-run
resnet-train demo data=images bs=8 budget=2w --dry-run
resnet-train demo data=images bs=8 launch.max_wall=1 --dry-run
resnet-train demo data=images bs=8 launch.retries=3 --dry-run
resnet-train demo data=images bs=8 epochs=1.5.2 --dry-run
resnet-train -m demo data=images bs=8 'lr=range(1,3' --dry-run
resnet-train demo data=images bs=8 ~methods.mixup --dry-run
resnet-train --resume images
resnet-recipes export first --to onnxx
resnet-recipes eval junk.pth
resnet-recipes eval junk2.pth
resnet-recipes cp mild
resnet-recipes run
resnet-recipes eval hf:me
resnet-recipes report images
resnet-train mild data=images ~methods.sam --dry-run
resnet-train mild data=images model.name=resnet51 --dry-run
resnet-train mild data=images model.name=efficientnet_b0 --dry-run
resnet-train demo data=images bs=8 model.weights=nope.pth --dry-run
resnet-train demo data=images bs=8 model.weights=null --dry-run
resnet-train demo data=images bs=8 epochs= --dry-run
resnet-train mild data=images precision.dtype=fp8 --dry-run
resnet-train mild data=images data.train_size=4000 --dry-run
resnet-train mild data=images data.fit=stretch --dry-run
resnet-train mild data=images data.sampling=equal --dry-run
resnet-train mild data=images log.to=[aim] --dry-run
resnet-train mild data=images checkpoint.best=f1 --dry-run
resnet-train mild data=images evaluation.interval=0 --dry-run
resnet-train mild data=images evaluation.sizes=224,256 --dry-run
resnet-train mild data=images evaluation.sizes=[224,4000] --dry-run
resnet-train -m mild data=images bs=8 seed=1,b
resnet-train mild data=images budget=2 --dry-run
resnet-train mild data=images budget=20 --dry-run
resnet-train mild data=images 'budget=$20' --dry-run
resnet-train mild data=images budget= --dry-run
resnet-train demo data=images bs=8 budget=10s --dry-run
resnet-train mild data=images launch.price=cheap --dry-run
resnet-train mild data=images stop_at_top1=high --dry-run
resnet-train mild data=images model.freeze=conv1 --dry-run
resnet-train --list --csv
resnet-train mild data=images resume=last --dry-run
resnet-train --resume
resnet-train mild --data images --epochs 2 --batch-sze 8
resnet-train --resume nope
resnet-train --resume firs
resnet-train --resume first epochs=9
resnet-train --extend first data=images epochs=9
resnet-train demo data=images bs=8 run=first
resnet-train -m mild data=images bs=8 lr=1,-1
resnet-recipes trian mild
resnet-recipes mild
resnet-recipes show
resnet-recipes show milld
resnet-recipes cp mild recipes/Mine.yaml
resnet-recipes cp mild junk.pth/mine.yaml
resnet-recipes validate junk.pth
resnet-recipes diff mild
resnet-recipes diff mild nope
resnet-recipes diff mild hotter
resnet-recipes methods mixap
resnet-recipes estimate mild
resnet-recipes estimate data=images --within 2
resnet-recipes estimate mild data=images --price -1
resnet-recipes plan mild data=images bs=8 epochs=0.001
resnet-recipes plan mild hot
resnet-recipes teach mild data=images bs=8
resnet-recipes runs nope
resnet-recipes runs --sort acc
resnet-recipes runs rm
resnet-recipes watch
resnet-recipes stop nope
resnet-recipes compare first
resnet-recipes compare mild hot
resnet-recipes compare first mild
resnet-recipes report nope
resnet-recipes report --published runs
resnet-recipes eval
resnet-recipes eval nope
resnet-recipes eval first --csv out.txt
resnet-recipes predict first
resnet-recipes predict first nope.jpg
resnet-recipes predict runs/x nope.jpg
resnet-recipes export first
resnet-recipes export first new
resnet-recipes export first --to tensorrt --out x
resnet-recipes export first --to onnx --out images
resnet-recipes convert images
resnet-recipes convert nope out
resnet-recipes convert images out quality=900
resnet-recipes doctor nope
resnet-recipes doctor data
resnet-recipes doctor data empty
resnet-recipes job mild
resnet-recipes job --for pbs mild data=/d
""".strip().splitlines()


def create_files(folder: Path) -> Path:
    create_random_images(folder / "images")
    create_random_images(folder / "one").joinpath("val").rename(folder / "val")
    (folder / "empty").mkdir()
    (folder / "junk.pth").write_text("no weights")
    for split in ("train", "val"):
        link = folder / "lonely" / split / "cats"
        link.parent.mkdir(parents=True)
        link.symlink_to(folder / "images/train/pattern0")
    create_run_folder(folder / "runs", "first")
    return folder


def show_message(line: str, folder: Path) -> str:
    with work_in(folder):
        code, _, err = run_line(line)
    return (err if code else "").replace(str(folder), "FOLDER") or f"[exit {code}]\n"


def read_golden() -> dict[str, str]:
    parts = re.split(r"(?m)^\$ (.*)\n", GOLDEN.read_text())
    return dict(zip(parts[1::2], (part.rstrip() + "\n" for part in parts[2::2]), strict=True))


@pytest.fixture(scope="module")
def work_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_files(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize("line", LINES)
def test_error_message_equals_golden_message(line: str, work_folder: Path):
    assert show_message(line, work_folder) == read_golden()[line]


def test_golden_error_messages_cover_every_command_of_test():
    assert list(read_golden()) == LINES


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        root = create_files(Path(temporary).resolve())
        GOLDEN.write_text("\n".join(f"$ {line}\n{show_message(line, root)}" for line in LINES))

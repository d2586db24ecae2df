"""Complete commands on a device that computes nothing."""

import subprocess
import sys

import pytest

from resnet_recipes.recipe.frozen_recipe import read

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

COMMAND = """
model.name=resnet18 data.backend=synthetic epochs=3 bs=64 data.train_size=128 data.eval_resize=128
data.eval_size=128 schedule.warmup=2ba methods.progressive_resizing.delay=0dur
evaluation.interval=3ep checkpoint.interval=3ep
"""


@pytest.fixture
def run_on_null_device(null_environment, tmp_path):
    """Return a function that runs COMMAND, which fails at its evaluation, and its output."""

    def run_command(arguments, **changes):
        place = f"run.root={tmp_path}", "run=tried"
        arguments = ["-m", "resnet_recipes", *COMMAND.split(), *arguments.split(), *place]
        done = subprocess.run(
            [sys.executable, *arguments],
            env=null_environment | changes,
            stderr=subprocess.PIPE,
            text=True,
        )
        *lines, _, error, _ = done.stderr.splitlines()
        assert " of 50 images; no accuracy is reported" in error  # the device computes no counts
        return lines

    return run_command


@pytest.mark.timeout(600)  # 90 s of CPU time, for compiling
def test_command_compiles_and_reports_two_graphs(run_on_null_device, tmp_path):
    *_, compiling, begin, _, replayed, last = run_on_null_device(
        "recipe=mild precision.compile=true batch.bn_size=64",
        NULL_DEVICES="1",
        TORCH_LOGS="recompiles",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert compiling == "compiling the network before the first step, which can take minutes"
    assert "begin step=0/6" in begin
    assert "from now on, gradients are replayed as CUDA graphs" in replayed
    assert "step=6/6 ep=3.00 px=116" in last
    # the evaluation compiles the network again
    assert (tmp_path / "tried" / "logs" / "rank0.log").read_text().count(
        "Recompiling function"
    ) == 1


@pytest.mark.timeout(300)  # 20 s of CPU time
@pytest.mark.parametrize(
    "arguments",
    ["recipe=mild", "recipe=hot precision.compress_gradients=true batch.bn_average=true"],
)
def test_train_on_two_gpus_uses_every_kernel(arguments, run_on_null_device):
    lines = run_on_null_device(f"batch.bn_size=32 {arguments}")
    assert "step=6/6 ep=3.00" in lines[-1]
    assert not [line for line in lines if "kernel cannot be used" in line]


@pytest.mark.timeout(300)  # 30 s of CPU time
def test_largest_fitting_micro_batch_is_frozen(run_on_null_device, tmp_path):
    small = {"NULL_DEVICES": "1", "NULL_MEMORY": "400000000"}
    lines = run_on_null_device("recipe=mild bs=96 batch.bn_size=auto", **small)
    (line,) = [line for line in lines if " is the most that fits on " in line]
    assert line.startswith("batch.bn_size=32 is the most that fits on null device")
    assert read(tmp_path / "tried" / "config.yaml").batch.bn_size == 32


@pytest.mark.timeout(400)  # 60 s of CPU time, for compiling every kernel
def test_out_of_bounds_kernel_is_replaced_and_reported(run_on_null_device, tmp_path):
    faulty = {"NULL_FAULT": "triton _scatter", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    lines = run_on_null_device("recipe=mild batch.bn_size=64", NULL_DEVICES="1", **faulty)
    (note,) = [line for line in lines if "the blur kernel cannot be used on this GPU" in line]
    assert "an illegal memory access was encountered" in note
    assert "step=6/6 ep=3.00" in lines[-1]


@pytest.mark.timeout(300)  # 20 s of CPU time
def test_every_single_operation_of_a_session_is_captured(null_environment, tmp_path):
    session = "benchmarks/gpu_session", "--call", "correctness", "--only", "kernels", "--quick"
    command = [sys.executable, *session, "--out", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(command, env=null_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

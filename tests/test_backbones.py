"""Networks of libraries: their names and arguments, and training as in their library."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import resnet_recipes
from resnet_recipes import backbones
from resnet_recipes.backbones import build_resnet
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.inference.export import ExportOptions, find_problems
from resnet_recipes.inference.formats import export
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network import about, pretrained
from resnet_recipes.network.build import build_model, build_network
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning import outline
from resnet_recipes.planning.network_facts import make_network_facts
from resnet_recipes.planning.plan import IMAGENET_FACTS
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import restore
from tests.shared.checks import get_error
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows
from tests.training.recording import find_differing_tensors, record

timm = pytest.importorskip("timm")

SEED, SIDE, CLASSES = 3, 64, 10  # some networks cannot use 32 px

#: Small networks that every test run trains, and two dozen from eighteen families.
FEW = ("timm:test_convnext", "timm:test_vit", "torchvision:squeezenet1_1")
MANY = (
    "timm:resnet18",
    "timm:resnetv2_50",
    "timm:seresnext26d_32x4d",
    "timm:convnext_atto",
    "timm:convnextv2_atto",
    "timm:efficientnet_b0",
    "timm:mobilenetv4_conv_small",
    "timm:regnetx_002",
    "timm:densenet121",
    "timm:vgg11_bn",
    "timm:vit_tiny_patch16_224",
    "timm:deit3_small_patch16_224",
    "timm:mixer_s32_224",
    "timm:nfnet_l0",
    "timm:poolformer_s12",
    "timm:edgenext_xx_small",
    "timm:mobilevit_xxs",
    "timm:repvgg_a0",
    "timm:ghostnet_100",
    "timm:hrnet_w18_small",
    "torchvision:resnext50_32x4d",
    "torchvision:convnext_tiny",
    "torchvision:swin_t",
    "torchvision:vit_b_32",
)

#: Transformers with a fixed image size are built for small images.
ARGUMENTS = {
    "timm:vit_tiny_patch16_224": {"img_size": SIDE},
    "timm:deit3_small_patch16_224": {"img_size": SIDE},
    "timm:mixer_s32_224": {"img_size": SIDE},
    "timm:test_vit": {"img_size": SIDE},
    "torchvision:vit_b_32": {"image_size": SIDE},
}


def make_network_settings(name: str, **more: float) -> dict:
    options = {"init": "library", "bn_init": "ones", "args": ARGUMENTS.get(name, {}) | more}
    return {"name": name} | options


@pytest.fixture
def build_run(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """Return a function that builds a short run of a library's network."""

    def make(name: str, args: Mapping[str, float] | None = None, **changes: object) -> Run:
        standard = {
            "max_duration": "2ba",
            "seed": SEED,
            "data": {"train_size": SIDE, "eval_size": SIDE, "eval_resize": SIDE},
            "batch": {"global_size": 8, "bn_size": 8, "eval_size": 8},
            "schedule": {"name": "constant", "warmup": "0ba"},
            "optimizer": {"name": "sgd", "momentum": 0.9, "lr": 0.01, "weight_decay": 0.0},
        }
        return make_run(model=make_network_settings(name, **(args or {})), **(standard | changes))

    return make


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in MANY)]
)
def test_two_steps_match_library_network_in_plain_torch(name, build_run):
    run = build_run(name)
    model, steps_inputs, expected = run.plan.recipe.model, [], []
    library, _, short = model.name.partition(":")
    torch.manual_seed(SEED)
    library_model = backbones.create_from_library(
        library, short, num_classes=run.plan.num_classes, **model.args
    )
    library_model.train().to(memory_format=torch.channels_last)
    loss_of = run.methods.loss

    def note(_, inputs):
        steps_inputs.append((inputs[0].clone(), torch.get_rng_state()))

    def note_targets(logits, targets):
        expected.append(targets.clone())
        return loss_of(logits, targets)

    run.model.register_forward_pre_hook(note)
    run.methods.loss = note_targets
    recording = record(run)
    optimizer = torch.optim.SGD(library_model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for (images, state), targets in zip(steps_inputs, expected, strict=True):
        torch.set_rng_state(state)  # for dropout
        optimizer.zero_grad()
        losses.append(
            F.cross_entropy(library_model(images), targets, reduction="sum") / len(images)
        )
        losses[-1].backward()
        optimizer.step()
    ours = torch.stack(recording.losses)
    torch.testing.assert_close(ours, torch.stack(losses).detach(), rtol=1e-4, atol=0)
    theirs = library_model.state_dict()
    for key, value in run.model.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-3, atol=1e-5)


def test_resumed_run_with_drop_path_is_bit_identical(
    build_run,
):
    changes = {
        "max_duration": "2ba",
        "methods": {"sam": {"interval": 2}, "ema": {}, "bce_loss": {}, "mixup": {}},
    }
    whole = build_run(FEW[0], {"drop_path_rate": 0.5}, **changes)
    recording = record(whole, keep=(1,))
    resumed = build_run(FEW[0], {"drop_path_rate": 0.5}, **changes)
    record(resumed, restore(resumed, recording.states[1]))
    assert find_differing_tensors(resumed, whole) == []


def test_run_of_library_network_loads_and_exports(build_run, tmp_path):
    run = build_run(FEW[1])
    record(run)
    described = about.describe(run.plan.recipe, run.plan.facts.classes, run.plan.num_classes)
    path = write_weights(run.model, tmp_path / "weights.safetensors", described)
    images = torch.randn(2, 3, SIDE, SIDE)
    network = resnet_recipes.load(path)
    expected = run.model.eval()(images)
    torch.testing.assert_close(network(images), expected)
    assert not list(find_problems(network, "timm", ExportOptions()))
    (tmp_path / "timm").mkdir()
    export(network, "timm", tmp_path / "timm")
    theirs = timm.create_model(FEW[1].partition(":")[2], num_classes=CLASSES, img_size=SIDE).eval()
    theirs.load_state_dict(load_file(tmp_path / "timm" / "model.safetensors"), strict=True)
    torch.testing.assert_close(theirs(images), expected)
    assert "--to timm" in next(find_problems(network, "torchvision", ExportOptions())).fix


def test_fine_tuning_starts_from_library_file(tmp_path):
    save_file(
        timm.create_model("test_efficientnet", num_classes=7).state_dict(),
        tmp_path / "w.safetensors",
    )
    config = ModelConfig(
        "timm:test_efficientnet", init="library", weights=str(tmp_path / "w.safetensors")
    )
    start = pretrained.find_weights(config, ("a", "b", "c"))
    assert "(the file has 7)" in start.classifier_text
    model = build_model(config, 3, seed=0)
    pretrained.load(model, start)
    pretrained.freeze(model, ModelConfig(freeze="backbone"))
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained == ["classifier.weight", "classifier.bias"]
    assert all(
        torch.equal(model.state_dict()[name], value) for name, value in start.tensors.items()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    parse_rows(
        """
timm:convnxt_tiny | model.name=timm:convnext_tiny
convnext_tiny | model.name=timm:convnext_tiny
vit_b_16 | model.name=torchvision:vit_b_16
torchvision:vit_tiny_patch16_224 | model.name=timm:vit_tiny_patch16_224
timm:resnet50.a1_in1k | model.weights=timm:resnet50.a1_in1k
hub:x | torchvision:NAME, timm:NAME
resnet50 model.args.drop_path_rate=0.1 | model.args.drop_path_rate=0.1: resnet50 takes no arguments
timm:test_convnext methods.stochastic_depth={} | model.args.drop_path_rate=0.1
timm:test_convnext model.args.drop=0.1 | unexpected keyword argument
timm:test_convnext model.args.checkpoint_path=1 | sets it from the recipe
timm:test_convnext model.args.checkpoint_path=x | a whole number
timm:test_convnext model.init=kaiming_normal | model.init=library
timm:test_convnext model.freeze=layer1 model.weights=x | =backbone
timm:vit_tiny_patch16_224 data.train_size=96 | data.train_size=224 data.eval_size=224
timm:test_vit methods.blurpool={} | ~methods.blurpool
torchvision:googlenet model.args.aux_logits=true model.args.init_weights=false | its output is not
torchvision:vit_b_32 data.train_size=96 data.eval_size=96 | data.train_size=224 data.eval_size=224
timm:deit_tiny_distilled_patch16_224 | several classifiers
"""
    ),
)
def test_unsupported_setting_is_rejected_with_fix(arguments, message):
    line = f"timm_a2 ~methods.stochastic_depth model.name={arguments}"
    assert message in str(get_error(RecipeError, plan_imagenet, line, 1))


def test_advised_image_sizes_can_be_planned():
    line = "mild ~methods.blurpool model.name=timm:vit_tiny_patch16_224"
    (problem,) = get_error(RecipeError, plan_imagenet, line, 1).problems
    advised = shlex.split(str(problem.fix))
    assert "~methods.progressive_resizing" in advised
    assert set(plan_imagenet(" ".join([line, *advised]), 1).image_sizes) == {224}


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(backbones, "find_spec", lambda name: None)
    with pytest.raises(NotReadyError, match=r"needs timm.*\n.*pip install .*timm"):
        backbones.build("timm:resnet18", 10, {})


def test_network_description_rejects_huge_network_and_path():
    standard = json.loads(about.NetworkDescription("timm:test_convnext", 4).to_json())
    for arguments in ({"depth": 1e9}, {"checkpoint_path": "/etc/passwd"}, [1]):
        with pytest.raises(ValueError, match="arguments"):
            about.from_json(json.dumps(standard | {"arguments": arguments}))
    with pytest.raises(ValueError, match="architecture"):
        about.from_json(json.dumps(standard | {"architecture": "timm:hf_hub:x/y"}))


@pytest.mark.parametrize(
    "arguments", [{"x\x1b": 1}, {"width": -1}, {"in_channels": 0.5}, {"in_channels": -3}]
)
def test_invalid_resnet_arguments_in_file_are_rejected(arguments):
    with pytest.raises(RecipeError, match="resnet18 cannot be built with these"):
        backbones.build_structure("resnet18", 4, arguments)


@pytest.mark.parametrize("frozen", ["none", "backbone"])
def test_flops_match_closed_form_of_same_resnet(frozen):
    config = ModelConfig("resnet18", freeze=frozen, weights="x", init="library")
    closed_form = make_network_facts(config, 7, Stack({}))
    counted = make_network_facts(replace(config, name="torchvision:resnet18"), 7, Stack({}))
    assert counted.count_flops(64) == closed_form.count_flops(64)
    assert counted.parameters == closed_form.parameters


def test_plan_lists_parts_of_recipe_without_effect():
    arguments = ["model.name=timm:test_convnext", "model.args.drop_path_rate=0.1"]
    arguments += ["~methods.blurpool", "~methods.progressive_resizing", "data.train_size=64"]
    result = make_plan(compose("mild", arguments, needs_data=False).recipe, IMAGENET_FACTS, 1)
    text = "\n".join(outline.format_lines(outline.describe_plan(result), width=200))
    assert "drop_path_rate=0.1, initialized by timm\n" in text
    assert "results are for resnet50, not for timm:test_convnext" in text
    assert result.published == []
    arguments = ["model.stem=small", "~methods.progressive_resizing"]  # a single size to count
    assert (
        make_plan(compose("mild", arguments, needs_data=False).recipe, IMAGENET_FACTS, 8).published
        == []
    )


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_width_multiplies_channels_and_keeps_names(name):
    standard, wide, narrow = (
        backbones.build_structure(name, 10, arguments).state_dict()
        for arguments in ({}, {"width": 2.0}, {"width": 0.25, "small_stem": True})
    )
    assert list(standard) == list(wide) == list(narrow)
    for key, weight in standard.items():
        channels = int(key == "fc.weight")  # the outputs of the classifier are the classes
        if weight.ndim and key != "fc.bias":
            assert wide[key].shape[channels] == 2 * weight.shape[channels], key
            assert narrow[key].shape[channels] == weight.shape[channels] / 4, key


def test_small_stem_keeps_every_pixel():
    network = backbones.build_structure("resnet18", 10, {"small_stem": True})
    stem = torch.nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
    assert stem(torch.empty(1, 3, 28, 28, device="meta")).shape == (1, 64, 28, 28)
    assert network.conv1.weight.shape == (64, 3, 3, 3)


def test_gray_network_averages_color_channels():
    torch.manual_seed(0)
    network = build_resnet("resnet18", 3, width=0.125, in_channels=1).eval()
    colors = torch.randn(2, 3, 32, 32)
    assert network.conv1.weight.shape == (8, 1, 7, 7)
    gray = colors.mean(1, keepdim=True)
    torch.testing.assert_close(network(colors), network(gray))
    torch.testing.assert_close(network(colors), network(gray.expand(2, 3, 32, 32)))


def test_changed_resnet_is_initialized_like_torchvision():
    torch.manual_seed(0)
    weight = build_resnet("resnet18", 10, small_stem=True, width=0.5).layer4[0].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)


def test_plan_counts_flops_of_stem_and_width():
    # He et al., 2015, count 0.56 billion multiply-adds for this ResNet-18
    standard = make_network_facts(ModelConfig("resnet18", stem="small"), 10, Stack({}))
    half = make_network_facts(ModelConfig("resnet18", stem="small", width=0.5), 10, Stack({}))
    assert standard.count_flops(32).training == pytest.approx(3 * 2 * 0.556e9, rel=0.01)
    assert half.count_flops(32).training == pytest.approx(
        standard.count_flops(32).training / 4, rel=0.01
    )
    assert standard.parameters == 11_173_962


def test_weights_describe_stem_and_width(tmp_path):
    recipe = compose("small", ["methods.blurpool={}", "model.width=0.125"], needs_data=False).recipe
    cpu = torch.device("cpu")
    model = build_network(recipe, Stack.of(recipe.methods), 5, cpu).eval()
    path = write_weights(model, tmp_path / "w.safetensors", about.describe(recipe, (), 5))
    images = torch.randn(2, 3, 32, 32)
    network = resnet_recipes.load(path)
    assert network.about.arguments == {"small_stem": True, "width": 0.125}
    torch.testing.assert_close(network(images), model(images))


def test_method_error_is_not_reported_as_image_size(monkeypatch):
    def fail(*_: object) -> None:
        raise ValueError("broken")

    config = ModelConfig("torchvision:resnet18")
    blurpool = BlurPool()
    facts = make_network_facts(config, 7, Stack({"blurpool": blurpool}))
    monkeypatch.setattr(BlurPool, "modify_model", fail)
    with pytest.raises(ValueError, match="broken"):
        list(facts.size_problems([32], 32))

"""The help page of each command: what it takes, and how it is used."""

from math import inf

from resnet_recipes.commands.arguments import RECIPES, Usage

#: What RUN may be, on every page that takes one.
RUN = "RUN is its folder, its name in ./runs, or last: the run that was started last."

#: What --csv does wherever a table is printed.
CSV = "also write the table as CSV"

#: Of `resnet-train`.
TRAIN = Usage(
    "resnet-train NAME data=/path/to/images [key=value ...]",
    "train a ResNet by a recipe",
    "resnet-train hot data=/data/imagenet epochs=180 '~methods.sam'",
    {
        "--list": "list recipes",
        "--describe NAME": "show a recipe, with the source of every value",
        "--dry-run": "print the plan without starting (--json: as JSON)",
        "--verbose": "print the whole plan, and every time in the summary",
        "--check": "train the last two steps of this run, evaluate and save once, delete all of it",
        "--cfg": "print the complete recipe as YAML",
        "--resume RUN": "continue a run: its folder, its name in ./runs, last, or auto for the "
        "unfinished run with these settings, or else a new one",
        "-m": "run every combination of several values: recipe=mild,medium seed=1,2,3 epochs=curve "
        "(22.5, 30, 54, 60, 72 and 90)",
        "--parallel N": "with -m: N runs at a time, one GPU each",
    }
    | RECIPES
    | {
        "--json": "with --list or --dry-run: print JSON",
        "--version": "print the version",
        "--completion SHELL": "print a completion script for bash, zsh or fish",
    },
    """\
Settings are key=value, in any order:
  data=PATH  epochs=N  ssr=R    images; length in epochs, or max_duration x R
  lr=  wd=  bs=  seed=          learning rate, weight decay, global batch size
  gpus=  workers=  run=NAME     GPUs, loader processes per GPU, name of the run
  optimizer=lamb schedule=step  another optimizer, another schedule, as a whole
  optimizer.momentum=0.9        any setting of the recipe (--cfg prints all)
  'methods.mixup={}'            turn a method on, with its defaults
  methods.mixup.alpha=0.3       turn it on with another value
  '~methods.ema'                turn it off

Under another launcher:
  torchrun --nproc-per-node=8 -m resnet_recipes NAME data=PATH
  srun --ntasks-per-node=8 resnet-train NAME data=PATH

Exit codes: 0 done; 1 training failed; 2 wrong command or recipe; 3 data or
machine not ready; 75 stopped from outside and saved; 130 Ctrl-C and saved.

Other commands (cp, compare, convert, doctor ...): resnet-recipes --help""",
)

#: Of each command of `resnet-recipes`, in the order of the overview.
PAGES = {
    "ls": Usage(
        "resnet-recipes ls",
        "list recipes, with their length and best-known result",
        "resnet-recipes ls",
        RECIPES | {"--csv FILE.csv": CSV, "--json": "print JSON"},
    ),
    "show": Usage(
        "resnet-recipes show NAME",
        "print a recipe's file, with the source of every value",
        "resnet-recipes show mild",
        RECIPES,
        words=(1, 1),
        takes="the name of one recipe",
    ),
    "cp": Usage(
        "resnet-recipes cp NAME FILE",
        "start your own recipe from another one",
        "resnet-recipes cp hot recipes/mine.yaml",
        {"--full": "a complete copy; without it, FILE inherits from NAME and has only what differs"}
        | RECIPES,
        words=(2, 2),
        takes="a recipe and a file",
    ),
    "diff": Usage(
        "resnet-recipes diff RECIPE|RUN RECIPE|RUN",
        "compare the settings of two recipes or runs",
        "resnet-recipes diff mild last",
        RECIPES | {"--csv FILE.csv": CSV},
        RUN,
        words=(2, 2),
        takes="two recipes or runs",
    ),
    "validate": Usage(
        "resnet-recipes validate [FILE ...]",
        "check recipe files, by default all in ./recipes, without data or a GPU",
        "resnet-recipes validate recipes/mine.yaml",
        RECIPES,
    ),
    "methods": Usage(
        "resnet-recipes methods [NAME]",
        "list the speed-up methods and optimizers, or show one with its settings",
        "resnet-recipes methods mixup",
    ),
    "plan": Usage(
        "resnet-recipes plan NAME [key=value ...]",
        "print everything a run would do, without starting it",
        "resnet-recipes plan mild data=/data/imagenet gpus=8",
        RECIPES
        | {
            "--verbose": "also rates and sizes by epoch, hooks, memory, all published results",
            "--json": "print JSON",
        },
        words=(1, inf),
        takes="a recipe",
    ),
    "estimate": Usage(
        "resnet-recipes estimate NAME data=PATH [key=value ...]",
        "measure this machine for a minute; predict a run's time and cost, and say what limits it",
        "resnet-recipes estimate mild data=/data/imagenet --price 32.8",
        RECIPES
        | {
            "--price PER_HOUR": "price of the machine",
            "--again": "measure again, not recall what was measured before",
            "--sample N": "train N epochs for real instead: the first of the whole run, or some at "
            "several image sizes; the rest follows by the papers' rule. Nothing is kept",
            "--csv FILE.csv": CSV,
            "--json": "print JSON",
        },
        "Run it while nothing else is running. All devices of this machine are measured at once.",
    ),
    "runs": Usage(
        "resnet-recipes runs [RUN|FOLDER] [recipe=NAME] [state=STATE] [name=TEXT]",
        "list runs with their state, progress, accuracy, time and cost",
        "resnet-recipes runs --sort top1 recipe=mild",
        {
            "--sort KEY": "name, top1, minutes, epochs, recipe or state",
            "--price PER_HOUR": "show what each run cost, by its wall time",
            "--json": "print JSON",
            "--csv FILE.csv": CSV,
        },
        """\
The default folder is runs. States: finished, running, stopped, failed, killed,
prepared (not started yet), unreadable. PFLOPS and TIME are training only;
`compare` and --json have the other clocks.""",
    ),
    "watch": Usage(
        "resnet-recipes watch RUN",
        "follow a run from another terminal, with its loss as a plot",
        "resnet-recipes watch last",
        {"--once": "print the state of the run once"},
        f"{RUN} watch ends when the run does; into a pipe it prints a line for each evaluation.",
        (1, 1),
        "one run",
    ),
    "compare": Usage(
        "resnet-recipes compare RUN RUN ...",
        "show what differs between runs, and whether seeds explain it",
        "resnet-recipes compare first last",
        {"--csv FILE.csv": CSV, "--json": "print JSON"},
        RUN,
        words=(2, inf),
        takes="at least two runs",
    ),
    "report": Usage(
        "resnet-recipes report [RUN|FOLDER ...]",
        "draw the curves of runs over published results, as one HTML page that needs no network",
        "resnet-recipes report runs --price 32.77 --out report.html",
        {
            "--out FILE.html": "the page (default report.html)",
            "--price PER_HOUR": "in dollars: also plot accuracy against cost",
            "--published": "only the published results",
            "--png FOLDER": "also write every plot as a picture",
        },
        f"{RUN} FOLDER has runs (default ./runs).",
    ),
    "eval": Usage(
        "resnet-recipes eval RUN|FILE [data=PATH] [key=value ...]",
        "evaluate a run, a checkpoint or a weights file: accuracy, classes and confusions",
        "resnet-recipes eval last data=/data/imagenet data.eval_size=256",
        {
            "--json": "print everything as JSON",
            "--csv FILE.csv": "also write the accuracy of every class, or of every size, as CSV",
            "--png FILE.png": "plot the confusion matrix and the accuracy of the 40 worst classes",
            "--images FILE.csv": "write prediction, probability and loss of every image as CSV",
            "--gallery FILE.html": "show the most confidently wrong images on an HTML page",
        },
        f"""\
{RUN} FILE may be ours, or a .pt or .safetensors file with torchvision's
or timm's names. PATH is a folder with val/, val.beton or class folders, or a table of
labels; by default, a run's own images are used. Settings are those of a recipe:
data.eval_size, data.eval_resize, evaluation.flip, batch.eval_size, precision.dtype,
launch.device, workers, gpus. All GPUs are used, as in training; gpus=1 takes one.

'evaluation.sizes=[192,224,256,288]' prints a table of test sizes in pixels; the
shorter side of the images grows with them.""",
    ),
    "predict": Usage(
        "resnet-recipes predict RUN|FILE IMAGE ... | FOLDER ... [key=value ...]",
        "print the most likely classes of each image, with their probabilities",
        "resnet-recipes predict last ~/photos --csv photos.csv",
        {
            "--top N": "how many classes, the most likely first (default 5)",
            "--csv FILE.csv": "write CSV instead, with a row for each image",
            "--json": "print JSON",
            "--strict": "end with 3 if any image cannot be read, not only if none can",
        },
        f"""\
{RUN} Folders are searched with their subfolders. Images that cannot be read are
reported on stderr, and the others are classified. Settings are those of `eval`,
but for gpus.""",
    ),
    "export": Usage(
        "resnet-recipes export RUN|FILE --to FORMAT --out FOLDER [data=PATH]",
        "write a trained network for another program, and compare what that program computes "
        "with the run",
        "resnet-recipes export last --to onnx --out exported",
        {
            "--to FORMAT": "torchvision, timm, safetensors, onnx, torchscript or exported_program",
            "--out FOLDER": "a new folder for the network and README.md, its model card",
            "--push hf:USER/NAME": "upload the folder to the Hugging Face Hub (hf auth login)",
            "--fold-batchnorm": "fold BatchNorm into the convolutions (onnx, torchscript, "
            "exported_program)",
            "--with-preprocessing": "from uint8 images of any size to probabilities (onnx, "
            "exported_program)",
        },
        f"""\
{RUN} BlurPool stays in the network, and StochasticDepth's factors become part of its
weights. The other program reads it back, and its results are compared on 64
validation images (of the run, or of PATH; random ones if there are none).""",
    ),
    "convert": Usage(
        "resnet-recipes convert SRC DST [option=value ...]",
        "convert images to .beton files, the format of FFCV, one per split",
        "resnet-recipes convert /data/imagenet /data/imagenet-ffcv max_resolution=500",
        {"--dry-run": "only predict size and time"},
        """\
SRC is a folder with train/ and val/, or one folder of classes; then DST is a
.beton file, unless val_share splits it into two. SRC may also be a folder of
WebDataset's tar files or of Hugging Face's parquet files. To resume a conversion, run
the same command again.

Options, with their defaults:
  max_resolution=500         pixels; larger images are shrunk; null: none are
  write_mode=proportion      raw: pixels; jpg: JPEG; proportion: some of each
  compress_probability=0.5   share of JPEG, for write_mode=proportion
  jpeg_quality=90            from 1 to 100
  levels=1                   2: also store half size, for small crops
  shuffle=true  seed=0       store in random order
  on_bad_image=error         error or skip
  val_share=0  val_seed=0    as data.val_share: some images become val.beton
  nested_classes=false       as data.nested_classes
  workers=0                  processes; 0: one per core""",
    ),
    "doctor": Usage(
        "resnet-recipes doctor [TOPIC] [PATH]",
        "check data, decoder, GPUs and machine, and say how to fix what is wrong",
        "resnet-recipes doctor data /data/imagenet",
        {
            "--no-images": "data: do not decode the images",
            "--fix-val MAP": "data: sort a flat val/ into class folders by this file",
            "--synsets NAMES": "data: the class folder of each number in MAP, one per line",
            "--json": "print JSON",
        },
        """\
Topics:
  data PATH           the images in a folder
  native              whether the native decoder works, or what its build lacks
  gpu                 driver, memory and what torch sees
  run [PATH]          cores, memory and disk
Without a topic: native, gpu and run.""",
    ),
    "job": Usage(
        "resnet-recipes job --for ENGINE NAME [key=value ...]",
        "print a run as a job for Slurm, SkyPilot, Kubernetes or torchx, resumed until it is done",
        "resnet-recipes job --for slurm hot data=/data/imagenet nodes=2 > job.sh",
        {
            "--for ENGINE": "slurm, skypilot, kubernetes (Kubeflow Trainer) or torchx",
            "--storage NAME": "skypilot: the URL of a bucket, or a volume; kubernetes: a claim. "
            "It holds the runs, and is mounted at /storage",
            "--time HH:MM:SS": "slurm: limit of one job (default 24:00:00)",
            "-m": "slurm: a job array with one job for each combination of several values: "
            "mild,medium seed=1,2,3",
            "--parallel N": "slurm: with -m, at most N jobs at a time",
        },
        "nodes=N and gpus=N (default 1 and 8) are the machines, and the GPUs of each.\n"
        "'resnet-recipes slurm' is short for 'resnet-recipes job --for slurm'.",
    ),
}

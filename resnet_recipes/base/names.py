"""Valid names of recipes, runs and published weights."""

import re

#: A recipe: the stem of its file, and its `name`.
RECIPE = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: A run: the folder of its results.
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")

#: Published weights, in `model.weights`; anything else is a path.
WEIGHTS = re.compile(
    r"torchvision(:\w+)?|(timm:|hf:[A-Za-z0-9][\w.-]{0,95}/)[A-Za-z0-9][\w.-]{0,95}"
)

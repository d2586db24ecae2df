"""Valid names of recipes, runs and published weights; the documentation's address."""

import re

#: The site whose pages are docs/*.md.
DOCS = "https://resnet-recipes.github.io/resnet-recipes"

#: A recipe: the stem of its file, and its `name`.
RECIPE = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: A run: the folder of its results.
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")

#: A part of a repository's name on the Hugging Face Hub.
_PART = r"[A-Za-z0-9]([\w.-]{0,94}\w)?"

#: A repository there, as in a recipe: hf:USER/NAME.
REPOSITORY = re.compile(rf"hf:(?!.*(--|\.\.)){_PART}/{_PART}(?<!\.git)")

#: Published weights, in `model.weights`; anything else is a path.
WEIGHTS = re.compile(rf"torchvision(:\w+)?|timm:[A-Za-z0-9][\w.-]{{0,95}}|{REPOSITORY.pattern}")

"""What recipes and runs may be called."""

import re

#: A recipe: the stem of its file, and its `name`.
RECIPE = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: A run: the folder of its results.
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")

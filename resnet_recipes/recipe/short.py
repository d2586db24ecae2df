"""Short words for settings, on the command line and at the top of a recipe file.

Such as `epochs`, `lr`, `bs`.
"""

from dataclasses import replace

from resnet_recipes.base.errors import Hint, Problem, RecipeError
from resnet_recipes.base.names import SHORT, targets
from resnet_recipes.recipe.strict_yaml import Document, plain


def written_out(document: Document) -> Document:
    """Return a recipe file with the settings that its short words stand for.

    Raises RecipeError if one of them sets what another line sets.
    """
    tree, lines, problems = dict(document.tree), dict(document.lines), []
    for word in [name for name in SHORT if not isinstance(tree.get(name, {}), dict)]:
        value, line = tree.pop(word), lines.pop(word)
        for key, _, form in (target.partition("=") for target in targets(word, str(value))):
            if key in lines:
                rule = f"{word} sets {key}, as line {lines[key]} does"
                problems.append(
                    Problem(document.where(word), None, rule, Hint("delete one of them"))
                )
            section, _, name = key.rpartition(".")
            setting = {name: value if form == "{}" else plain(form.format(value))}
            if not section:
                tree |= setting
            elif isinstance(tree.get(section, {}), dict):
                tree[section] = tree.get(section, {}) | setting
            lines[key] = line
    RecipeError.refuse(problems)
    return replace(document, tree=tree, lines=lines)

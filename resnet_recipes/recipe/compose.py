"""Compose one recipe from a name and a user's changes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from resnet_recipes.base import names
from resnet_recipes.base.architecture import find_implied_settings
from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Hint, Kind, Problem, RecipeError
from resnet_recipes.base.names import targets
from resnet_recipes.base.suggestions import VALUES, apply_meaning, explain_key
from resnet_recipes.methods import ORDER
from resnet_recipes.recipe import frozen, hydra_compose, overrides
from resnet_recipes.recipe.library import Entry, Library, Origin, read
from resnet_recipes.recipe.meant import Own, explain
from resnet_recipes.recipe.overrides import Override, absolute
from resnet_recipes.recipe.schema import Recipe, enabled
from resnet_recipes.recipe.sections import ScheduleConfig
from resnet_recipes.recipe.strict_yaml import Document
from resnet_recipes.recipe.typed import fitting, typed, whole
from resnet_recipes.run_folder import CONFIG

Links = list[tuple[Entry, Document]]  # a recipe's files, the most basic one first


class Composed(NamedTuple):
    """A recipe that is ready to be planned, and where it came from."""

    recipe: Recipe
    origin: Origin


def compose(
    name: str,
    changes: Sequence[str] = (),
    folder: Path | Library | None = None,
    needs_data: bool = True,
) -> Composed:
    """Compose a recipe by name or path, apply changes, and check it.

    Changes are those of the command line: "optimizer.lr=1.0", "~methods.ema", "epochs=18". `folder`
    holds the user's recipes (default ./recipes), or is a Library that has listed them. Without
    `needs_data`, data.root may be unset. Raises RecipeError with every problem at once.
    """
    library = folder if isinstance(folder, Library) else Library(folder)
    links, (changed, problems) = library.chain(name), overrides.parse(changes)
    options, unknown = _options(changed, library)
    made, wrong = _composed(links, options, changed, library)
    problems += unknown + wrong
    # a file's own problem begins with its place
    if problems := [one for one in problems if needs_data or one.key != "data.root"]:
        raise RecipeError(_answered(problems, changes, made.recipe, [*links, *options]))
    _make_absolute(made.recipe)
    return made


def _answered(
    problems: Sequence[Problem], changes: Sequence[str], recipe: Recipe, links: Links
) -> list[Problem]:
    """Return what is wrong with a recipe and with changes, with what is meant by each."""
    own = Own(recipe.name, partial(_before, links), tuple(_methods_on(links)))
    told = [explain(problem, changes, own) for problem in problems]
    others = [problem for problem in told if problem.key != "data.root"]
    is_found = any(fix.startswith("data=") for one in others for fix in one.fixes)
    return others if is_found else told


def _before(links: Links, key: str) -> object:
    """Return the value that a recipe's files give a setting, or its default."""
    if key == "epochs":
        base, ratio = _before(links, "max_duration"), _before(links, "scale_schedule_ratio")
        recipe = Recipe(max_duration=base, scale_schedule_ratio=ratio)
        return str(recipe.length).removesuffix("ep") if is_duration(base) else None
    full = targets(key, "1")[0].partition("=")[0]
    for source in (*(document.tree for _, document in reversed(links)), frozen.tree_of(Recipe())):
        found: Any = source
        for name in full.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _composed(
    links: Links, options: Links, changed: Sequence[Override], library: Library
) -> tuple[Composed, list[Problem]]:
    """Return a recipe with options and changes, and everything that is wrong with it."""
    entry, _ = links[-1]
    files, problems = _files([*links, *options], library)
    choices = [hydra_compose.choice(option.group, _config(option)) for option, _ in options]
    settings = [override.word for override in changed if not override.is_choice]
    try:
        tree = hydra_compose.composed(_config(entry), files, choices, settings)
    except ValueError as error:
        raise RecipeError(
            [*problems, Problem(entry.place, None, f"cannot be composed: {error}")]
        ) from None
    _claim(tree, links, changed)
    _follow(tree, links, changed)
    recipe, wrong = typed(tree)
    problems += _idle_removals(changed, links)
    problems += _idle_settings(changed, recipe.schedule)
    links = [*links, *options]
    problems += [_located(problem, changed, links) for problem in wrong]
    digests = {str(link.path): hashlib.sha256(document.raw).hexdigest() for link, document in links}
    words = tuple(dict.fromkeys(override.typed for override in changed))
    full = {override.key: str(override) for override in changed}
    return Composed(recipe, Origin(entry, digests, words, full)), problems


def from_config(config: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a Hydra application has composed in a node of its own config.

    Raises RecipeError with every problem but missing data.
    """
    try:
        recipe, problems = typed(hydra_compose.plain(config))
    except ValueError as error:
        raise RecipeError.of("recipe", None, f"cannot be read: {error}") from None
    RecipeError.refuse(problem for problem in problems if problem.key != "data.root")
    _make_absolute(recipe)
    return recipe


def _make_absolute(recipe: Recipe) -> None:
    """Make the paths in a recipe valid in any current folder."""
    recipe.data.root = absolute("data.root", recipe.data.root)
    recipe.data.cache = absolute("data.cache", recipe.data.cache)
    recipe.run.root = absolute("run.root", recipe.run.root)
    if "/" in recipe.run.extends:
        recipe.run.extends = absolute("run.extends", recipe.run.extends)
    weights = recipe.model.weights
    if weights and not names.WEIGHTS.fullmatch(weights):
        recipe.model.weights = absolute("model.weights", weights)
    for name, method in enabled(recipe.methods).items():
        for key in filter(None, (method.network_setting, method.stored_setting)):
            if not names.WEIGHTS.fullmatch(place := getattr(method, key)):
                setattr(method, key, absolute(f"methods.{name}.{key}", place))


def _options(changed: Sequence[Override], library: Library) -> tuple[Links, list[Problem]]:
    """Read the option that each group's last choice names; return what is wrong with others."""
    found, problems = {}, []
    for override in changed:
        if override.is_choice:
            try:
                entry = library.option(override.key, override.value)
                found[override.key] = entry, read(entry)
            except RecipeError as error:
                problems += error.problems
    return list(found.values()), problems


def _files(links: Links, library: Library) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Return the files by their names among Hydra's configs, and the values that do not fit."""
    files, problems = {}, []
    for entry, document in links:
        tree = {key: value for key, value in document.tree.items() if key != "defaults"}
        tree, wrong = fitting(tree, in_file=True)
        problems += [_placed(problem, document) for problem in wrong]
        if entry.group:
            files[_config(entry)] = whole(entry.group, tree[entry.group])
        else:
            above = [_config(parent) for parent in library.inherited(entry, document)]
            files[_config(entry)] = {"defaults": [*above, "_self_"], **tree}
    return files, problems


def _config(entry: Entry) -> str:
    """Return the name of a file among Hydra's configs.

    A user's may have the name of a packaged one.
    """
    name = {"packaged": entry.name, "user": f"user-{entry.name}", "file": "file-"}[entry.origin]
    return f"{entry.group}/{name}" if entry.group else name


def _claim(tree: dict[str, Any], links: Links, changed: Sequence[Override]) -> None:
    """Give a recipe that inherits its own name, and a run of another run's recipe its own.

    Its parents' description and published results are dropped.
    """
    entry, document = links[-1]
    typed = {override.key for override in changed}
    if "name" not in typed:
        tree["name"] = document.tree.get("name", entry.path.stem)
    for key in {"run.name", "run.extends"} - typed if entry.path.name == CONFIG else ():
        tree.get("run", {}).pop(key.removeprefix("run."), None)
    for key in ("about", "published"):
        if key not in document.tree:
            tree.pop(key, None)


def _follow(tree: dict[str, Any], links: Links, changed: Sequence[Override]) -> None:
    """Draw and build a library's network as it wants, unless a word or its own file says otherwise.

    Its own file is the one that names it; what stands above is for another network.
    """
    model = tree.get("model")
    if not isinstance(model, dict):
        return
    own = {override.key.removeprefix("model.") for override in changed}
    for _, document in reversed(links if "name" not in own else []):
        section = document.tree.get("model")
        own |= set(section) if isinstance(section, dict) else set()
        if "name" in own:
            break
    for key, value in find_implied_settings(str(model.get("name"))).items():
        if key == "args":
            model[key] = value | (model.get(key) or {})
        elif key not in own:
            model[key] = value


def _idle_removals(changed: Sequence[Override], links: Links) -> Iterator[Problem]:
    """Yield a problem for each removed method that is not on.

    Such an ablation would change nothing.
    """
    on = _methods_on(links)
    if any(override.key == "model.weights" for override in changed):
        on |= {method.name for method in ORDER if method.in_network}  # weights may bring them
    for override in changed:
        section, _, name = override.key.partition(".")
        if override.value is None and section == "methods" and name not in on:
            fix = Hint(f"methods that are on: {', '.join(sorted(on)) or 'none'}")
            yield Problem(override.typed, None, f"is not on in {links[-1][0].name}", fix)


def _methods_on(links: Links) -> set[str]:
    """Return the methods that are on in a recipe's files."""
    sections = [document.tree.get("methods") for _, document in links]
    return {
        name
        for section in sections
        if isinstance(section, dict)
        for name, value in section.items()
        if value is not None
    }


def _idle_settings(changed: Sequence[Override], schedule: ScheduleConfig) -> Iterator[Problem]:
    """Yield a problem for each setting of the schedule that the chosen one does not read."""
    for override in changed:
        section, _, name = override.key.partition(".")
        readers = schedule.READ_BY.get(name, ()) if section == "schedule" else ()
        if readers and schedule.name not in readers:
            rule = f"is for {' and '.join(readers)}, and the schedule is {schedule.name}"
            fix = f"schedule.name={readers[0]}"
            yield Problem(override.key, override.value, rule, fix, typed=override.typed)


def _located(problem: Problem, changed: Sequence[Override], links: Links) -> Problem:
    """Name file and line of a setting from a recipe file, unless an override has touched it."""
    settings = [override.key for override in changed if not override.is_choice]
    if any(f"{problem.key}.".startswith(f"{key}.") for key in settings):
        return problem
    return next(
        (
            _placed(problem, document)
            for _, document in reversed(links)
            if problem.key in document.lines
        ),
        problem,
    )


def _placed(problem: Problem, document: Document) -> Problem:
    """Name file and line of a problem, and answer a value that has another name elsewhere."""
    known = VALUES.get(problem.key, {})
    if ours := known.get(str(problem.value).lower()):
        problem = apply_meaning(problem, ours)
    elif problem.kind is Kind.UNKNOWN and not problem.fixes:
        problem = explain_key(problem)
    return problem._replace(where=document.where(problem.key))

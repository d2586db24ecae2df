"""Compose one recipe from a name and a user's changes."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from resnet_recipes.base import names
from resnet_recipes.base.duration import SETTINGS as DURATION_SETTINGS
from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Change, Hint, Kind, Problem, RecipeError, Statement, to_text
from resnet_recipes.base.model_config import find_implied_settings
from resnet_recipes.base.names import get_full_name
from resnet_recipes.base.suggestions import TIMM_TRANSLATIONS, TRANSLATIONS
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.stack import Stack
from resnet_recipes.recipe import frozen_recipe, hydra_compose, overrides
from resnet_recipes.recipe.build import build_recipe, complete_section, fit_sections
from resnet_recipes.recipe.explain import Context, add_suggestion, describe_enabled_methods
from resnet_recipes.recipe.library import Entry, Library, Link, Origin, read
from resnet_recipes.recipe.overrides import Override, make_absolute
from resnet_recipes.recipe.schema import Recipe, get_enabled
from resnet_recipes.recipe.sections import ScheduleConfig
from resnet_recipes.recipe.strict_yaml import Document
from resnet_recipes.run_folder import CONFIG

Links = list[Link]  # the files of a recipe, the base first


class WrongSettingsError(RecipeError):
    """Problems of settings in a recipe whose other settings can still be checked."""

    def __init__(self, problems: Iterable[Problem], recipe: Recipe | None = None):
        super().__init__(problems)  # commands raise it again, with other problems
        self.recipe = recipe or Recipe()


class ComposedRecipe(NamedTuple):
    """A complete recipe and its origin."""

    recipe: Recipe
    origin: Origin
    network: Any = None  # its pretrained network, without values, if it was opened


def compose(
    name: str,
    changes: Sequence[str] = (),
    folder: Path | Library | None = None,
    needs_data: bool = True,
) -> ComposedRecipe:
    """Compose a recipe by name or path, apply changes and check it.

    Changes have the form of command-line arguments: "optimizer.lr=1.0", "~methods.ema",
    "epochs=18". `folder` contains the user's recipes (default: ./recipes), or is a Library. Without
    `needs_data`, data.root may be unset. Raises RecipeError with the problems of the recipe and the
    changes: a WrongSettingsError unless Hydra cannot compose it. Raises NotReadyError if `name` is
    the path of a missing file.
    """
    library = folder if isinstance(folder, Library) else Library(folder)
    links = library.read_chain(name)
    changed, problems = overrides.parse(changes)
    options = _read_group_options(changed, links, library, problems)
    result = _compose_links(links, options, changed, problems)
    if problems := [problem for problem in problems if needs_data or problem.key != "data.root"]:
        suggested = _add_suggestions(problems, changes, result.recipe, [*links, *options])
        with suppress(RecipeError):
            _resolve_paths(result.recipe)
        raise WrongSettingsError(suggested, result.recipe)
    _resolve_paths(result.recipe)
    return result


def _add_suggestions(
    problems: Sequence[Problem], changes: Sequence[str], recipe: Recipe, links: Links
) -> list[Problem]:
    context = _make_context(recipe.name, links, recipe)
    suggested = [add_suggestion(problem, changes, context) for problem in problems]
    rest = [problem for problem in suggested if problem.key != "data.root"]
    keys = {problem.key for problem in rest}
    keys |= {change.key for problem in rest for change in problem.changes}
    return rest if "data" in keys else suggested


def _make_context(name: str, links: Links, recipe: Recipe) -> Context:
    methods = tuple(_list_methods(links))
    before = partial(_read_setting, links)
    chosen = {"optimizer": recipe.optimizer.name, "model": recipe.model.name}
    translations = TIMM_TRANSLATIONS if recipe.model.name.startswith("timm:") else TRANSLATIONS
    return Context(name, before if links else {}.get, methods, (), translations, chosen)


def _read_number(links: Links, key: str) -> float:
    """Return the number of a setting in the files of a recipe; 0 if it is a reference."""
    value = _read_setting(links, key)
    return value if isinstance(value, int | float) else 0


def _read_setting(links: Links, key: str) -> object:
    """Return the value of a setting in the files of a recipe, or its default."""
    if key == "epochs":
        base = _read_setting(links, "max_duration")
        ratio = _read_setting(links, "scale_schedule_ratio")
        recipe = Recipe(max_duration=base, scale_schedule_ratio=ratio)
        return str(recipe.duration).removesuffix("ep") if is_duration(base) else None
    trees = [link.document.tree for link in reversed(links)]
    for tree in (*trees, frozen_recipe.to_tree(Recipe())):
        value: Any = tree
        for name in get_full_name(key).split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _compose_links(
    links: Links, options: Links, changed: Sequence[Override], problems: list[Problem]
) -> ComposedRecipe:
    """Compose a recipe with options and changes; append its problems to `problems`."""
    entry = links[-1].entry
    files = _collect_files([*links, *options], problems)
    choices = [
        hydra_compose.choose_option(option.group, _name_config(option)) for option, *_ in options
    ]
    settings = [override.argument for override in changed if not override.is_choice]
    try:
        tree = hydra_compose.compose_tree(_name_config(entry), files, choices, settings)
    except ValueError as error:
        raise RecipeError(
            [*problems, Problem(entry.location, None, f"cannot be composed: {error}")]
        ) from None
    _set_name(tree, links, changed)
    _apply_implied_settings(tree, links, changed)
    recipe, mistakes = build_recipe(tree)
    problems += _find_removal_problems(changed, links)
    if not {"schedule", "schedule.name"} & {problem.key for problem in (*problems, *mistakes)}:
        problems += _find_idle_problems(changed, recipe.schedule)
    links = [*links, *options]
    mistakes += _find_duration_problems(changed, recipe.launch.budget)
    if mistakes or problems:  # a plan reports these conflicts
        mistakes += (problem.under("methods") for problem in Stack.of(recipe.methods).problems())
    problems += [_locate(problem, changed, links, recipe) for problem in mistakes]
    digests = {
        str(link.path): hashlib.sha256(document.raw).hexdigest() for link, document, _ in links
    }
    last = {override.key: override.typed for override in changed}
    typed = dict.fromkeys(override.typed for override in changed)
    arguments = tuple(text for text in typed if text in last.values())  # not epochs=5 epochs=6
    full = {override.key: str(override) for override in changed}
    lr, size = (_read_number(links, key) for key in ("optimizer.lr", "batch.global_size"))
    origin = Origin(entry, digests, arguments, full, batch_size=int(size), lr=lr)
    return ComposedRecipe(recipe, origin)


def from_config(config: Mapping[str, Any]) -> Recipe:
    """Return the recipe in a node of another Hydra application's config.

    Raises RecipeError if it is not valid; data may be missing.
    """
    try:
        recipe, problems = build_recipe(hydra_compose.resolve_references(config))
    except ValueError as error:
        raise RecipeError.of("recipe", None, f"cannot be read: {error}") from None
    RecipeError.raise_if_any(problem for problem in problems if problem.key != "data.root")
    _resolve_paths(recipe)
    return recipe


def _resolve_paths(recipe: Recipe) -> None:
    """Make the paths in a recipe absolute, so that they do not depend on the current folder."""
    recipe.data.root = make_absolute("data.root", recipe.data.root)
    recipe.data.cache = make_absolute("data.cache", recipe.data.cache)
    recipe.run.root = make_absolute("run.root", recipe.run.root)
    if "/" in recipe.run.extends:
        recipe.run.extends = make_absolute("run.extends", recipe.run.extends)
    weights = recipe.model.weights
    if weights and not names.PUBLISHED_WEIGHTS.fullmatch(weights):
        recipe.model.weights = make_absolute("model.weights", weights)
    for name, method in get_enabled(recipe.methods).items():
        for key in filter(None, (method.network_setting, method.soft_labels_setting)):
            if not names.PUBLISHED_WEIGHTS.fullmatch(path := getattr(method, key)):
                setattr(method, key, make_absolute(f"methods.{name}.{key}", path))


def _read_group_options(
    changed: Sequence[Override], links: Links, library: Library, problems: list[Problem]
) -> Links:
    """Read the last option chosen for each group; append all problems to `problems`.

    A packaged option that the recipe uses already is omitted: the recipe keeps its settings.
    """
    options = {}
    for override in changed:
        if override.is_choice:
            try:
                entry = library.find_option(override.key, override.value)
                options[override.key] = Link(entry, read(entry))
            except RecipeError as error:
                problems += error.problems
    return [option for option in options.values() if not _is_in_use(option, links)]


def _is_in_use(option: Link, links: Links) -> bool:
    if option.entry.origin != "packaged":  # a user's file may lack the name
        return False
    group = option.entry.group
    return option.document.tree[group]["name"] == _read_setting(links, f"{group}.name")


def _collect_files(links: Links, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Return the contents of files by their names in the Hydra config tree."""
    files = {}
    for entry, document, parents in links:
        tree = {key: value for key, value in document.tree.items() if key != "defaults"}
        misfits = list[Problem]()
        tree = fit_sections(tree, misfits)
        problems += document.problems
        problems += [add_location(problem, document) for problem in misfits]
        if entry.group:
            files[_name_config(entry)] = complete_section(entry.group, tree[entry.group])
        else:
            above = map(_name_config, parents)
            files[_name_config(entry)] = {"defaults": [*above, "_self_"], **tree}
    return files


def _name_config(entry: Entry) -> str:
    """Return the name of a file in the Hydra config tree.

    The name includes the origin, because a user's file may have the same name as a packaged file.
    """
    name = {"packaged": entry.name, "user": f"user-{entry.name}", "file": "file-"}[entry.origin]
    return f"{entry.group}/{name}" if entry.group else name


def _set_name(tree: dict[str, Any], links: Links, changed: Sequence[Override]) -> None:
    """Name a recipe after its file, and remove the descriptions and results of its parents.

    If the recipe belongs to a run, also remove the name and folder of the run, since the folder may
    be a copy.
    """
    entry, document, _ = links[-1]
    changed_keys = {override.key for override in changed}
    if "name" not in changed_keys:
        tree["name"] = document.tree.get("name", entry.path.stem)
    run_keys = {"run.root", "run.name", "run.extends"}
    for key in run_keys - changed_keys if entry.path.name == CONFIG else ():
        tree.get("run", {}).pop(key.removeprefix("run."), None)
    for key in ("about", "published"):
        if key not in document.tree:
            tree.pop(key, None)


def _apply_implied_settings(
    tree: dict[str, Any], links: Links, changed: Sequence[Override]
) -> None:
    """Add the settings that a library network needs, such as its own initialization.

    Changes, and settings in the file that names the network, take precedence.
    """
    model = tree["model"]
    explicit = {override.key.removeprefix("model.") for override in changed}
    for _, document, _ in reversed(links if "name" not in explicit else []):
        section = document.tree.get("model")
        explicit |= set(section) if isinstance(section, dict) else set()
        if "name" in explicit:
            break
    for key, value in find_implied_settings(str(model.get("name"))).items():
        if key == "args":
            model[key] = value | (model.get(key) or {})
        elif key not in explicit:
            model[key] = value


def _find_removal_problems(changed: Sequence[Override], links: Links) -> Iterator[Problem]:
    on = _list_methods(links)
    # other arguments turn these methods on
    allowed_names = {
        override.key.split(".")[1]
        for override in changed
        if override.key.startswith("methods.") and override.value is not None
    }
    if any(override.key == "model.weights" for override in changed):
        # pretrained weights may switch these methods on
        allowed_names |= {method.name for method in ORDER if method.in_network}
    for override in changed:
        section, _, name = override.key.partition(".")
        if override.value is None and section == "methods" and name not in on | allowed_names:
            recipe = links[-1][0].name
            clause = Statement(f"{recipe} does not use {name}")
            yield Problem(override.typed, None, clause, describe_enabled_methods(recipe, on))


def _list_methods(links: Links) -> set[str]:
    sections = [link.document.tree.get("methods") for link in links]
    return {
        name
        for section in sections
        if isinstance(section, dict)
        for name, value in section.items()
        if value is not None
    }


def _find_duration_problems(changed: Sequence[Override], budget: str) -> Iterator[Problem]:
    typed = [override.typed for override in changed if override.key in DURATION_SETTINGS]
    if typed and budget:
        clause = Statement(f"{typed[0]} already sets the duration")
        hint = Hint("remove one of them")
        yield Problem("launch.budget", budget, clause, hint)


def _find_idle_problems(changed: Sequence[Override], schedule: ScheduleConfig) -> Iterator[Problem]:
    for override in changed:
        section, _, name = override.key.partition(".")
        readers = schedule.READ_BY.get(name, ()) if section == "schedule" else ()
        if readers and schedule.name not in readers:
            clause = f"is for {' and '.join(readers)}, and the schedule is {schedule.name}"
            fix = Change(f"schedule.name={readers[0]}")
            yield Problem(override.key, override.value, clause, fix, typed=override.typed)


def _locate(problem: Problem, changed: Sequence[Override], links: Links, recipe: Recipe) -> Problem:
    """Add a user's file and line to a problem, unless an override changes its setting.

    Without overrides, a problem of an inherited setting concerns the last file.
    """
    settings = [override.key for override in changed if not override.is_choice]
    if any(f"{problem.key}.".startswith(f"{key}.") for key in settings):
        return problem
    user_links = [link for link in reversed(links) if link.entry.origin != "packaged"]
    matches = [link for link in user_links if problem.key in link.document.lines]
    matches += [] if changed or problem.kind is Kind.MISSING else user_links
    if not matches:
        return problem
    below = [link for link in links if link is not matches[0]]
    name = below[-1].entry.name if below else "mild"
    return add_location(problem, matches[0].document, _make_context(name, below, recipe))


def add_location(problem: Problem, document: Document, context: Context | None = None) -> Problem:
    """Add file and line to a problem, and the suggestion for this argument, written as YAML."""
    argument = f"{problem.key}={to_text(problem.value)}"
    is_section = problem.value and isinstance(problem.value, dict)
    if not is_section and (problem.value is not None or problem.kind is Kind.UNKNOWN):
        on = [method.name for method in ORDER]  # null turns off what it inherits
        context = (context or Context("mild", {}.get))._replace(methods=on)
        problem = add_suggestion(problem, [argument], context)
    lines = [line for fix in problem.advice for line in document.format_fix(problem.key, fix)]
    return problem._replace(where=document.locate(problem.key), fix=tuple(lines))

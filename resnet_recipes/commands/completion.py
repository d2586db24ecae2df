"""`resnet-train --completion SHELL`: a script that completes recipes, settings, methods and runs.

Settings are part of the script, and the shell looks up recipes and runs itself, so that completion
starts no program.
"""

import re

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES, TRAIN
from resnet_recipes.network.export import TARGETS
from resnet_recipes.recipe.library import GROUPS, Library, packaged_folder
from resnet_recipes.recipe.short import SHORT
from resnet_recipes.recipe.typed import settings

#: Where the script goes: one file for both commands, which each shell reads when it starts.
PLACES = {
    "bash": "~/.resnet-recipes.bash   and in ~/.bashrc: source ~/.resnet-recipes.bash",
    "zsh": "~/.resnet-recipes.zsh   and in ~/.zshrc, after compinit: source ~/.resnet-recipes.zsh",
    "fish": "~/.config/fish/conf.d/resnet-recipes.fish",
}

_BASH = """\
# resnet-train --completion @shell > @place
@head_resnet_recipes() {
    local line="${COMP_LINE:0:COMP_POINT}" word before file
    local words="@settings" names="@recipes" runs="last"
    word="${line##* }"; before="${line%"$word"}"; before="${before% }"; before="${before##* }"
    case "$line" in
        resnet-recipes\\ *\\ *) ;;
        resnet-recipes\\ *) words="@commands" ;;
        *) words="$words @flags" ;;
    esac
    for file in runs/*/config.yaml; do
        [[ -e "$file" ]] && runs="$runs ${file%/config.yaml}"
    done
    words="$words $runs"
    for file in recipes/*.yaml; do
        [[ -e "$file" ]] && file="${file##*/}" && words="$words recipe=${file%.yaml}" \\
            && names="$names ${file%.yaml}"
    done
    case "$before" in
        @verbs|resnet-train|train) words="$names $words" ;;
        --describe) words="$names" ;;
        --to) words="@targets" ;;
        --resume) words="auto $runs" ;;
    esac
    case "$before $word" in
        *\\ data=*|*\\ model.weights=*) COMPREPLY=($(compgen -f -- "${word#*=}")) ;;
        --out\\ *|--csv\\ *|--png\\ *|--recipes\\ *) COMPREPLY=($(compgen -f -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    esac
    case "$word" in *=*) COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}") ;; esac
    if [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _resnet_recipes resnet-train resnet-recipes
"""

_FISH = """\
# resnet-train --completion fish > @place
for command in resnet-train resnet-recipes
    complete -c $command -f -a "@settings"
    complete -c $command -f -a "(for file in recipes/*.yaml; \\
        string replace -r '^recipes/(.*)[.]yaml\\$' 'recipe=\\$1' \\$file; end)"
    complete -c $command -f -a "last (for file in runs/*/config.yaml; \\
        string replace /config.yaml '' \\$file; end)"
end
complete -c resnet-train -f -a "@flags"
complete -c resnet-train -n "__fish_is_first_arg" -f -a "@recipes"
complete -c resnet-train -l describe -x -a "@recipes"
complete -c resnet-recipes -n "__fish_is_first_arg" -f -a "@commands"
complete -c resnet-recipes -n "__fish_seen_subcommand_from @spaced" -f -a "@recipes"
complete -c resnet-recipes -l to -x -a "@targets"
for flag in out csv png recipes
    complete -c resnet-recipes -l $flag -r -F
end
"""


def run(arguments: Arguments) -> int:
    """Print the script for a shell."""
    print(script(arguments.flags["--completion"]), end="")
    return 0


def script(shell: str) -> str:
    """Return the script for a shell. Raises RecipeError for an unknown one."""
    if shell not in PLACES:
        raise RecipeError([Problem("--completion", shell, f"must be one of {', '.join(PLACES)}")])
    head = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    # those whose first word is a recipe
    verbs = [verb for verb, page in PAGES.items() if re.search(" (NAME|RECIPE)", page.line)]
    parts = {
        "shell": shell,
        "place": PLACES[shell],
        "head": head,
        "settings": " ".join(_settings()),
        "recipes": " ".join(Library().packaged),
        "targets": " ".join(TARGETS),
        "verbs": "|".join(verbs),
        "spaced": " ".join(verbs),
        "commands": " ".join(PAGES),
        "flags": " ".join([*TRAIN.values, "--help"]),
    }
    text = _FISH if shell == "fish" else _BASH
    for name, value in parts.items():
        text = text.replace(f"@{name}", value)
    return text


def _settings() -> list[str]:
    """Return all words that a command accepts, up to their values."""
    known = settings()
    sections = {key.rpartition(".")[0] for key in known if "." in key}
    methods = [key for key in known if key.startswith("methods.") and key.count(".") == 1]
    return [
        *(f"recipe={name}" for name in Library().packaged),
        *(f"{key}=" for key in SHORT),
        *(
            f"{group}={path.stem}"
            for group in GROUPS
            for path in sorted(packaged_folder().glob(f"{group}/*.yaml"))
        ),
        *(f"{key}=" for key in known if key not in sections and key not in methods),
        *(f"{key}={{}}" for key in methods),
        *(f"~{key}" for key in methods),
    ]

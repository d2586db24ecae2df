"""`resnet-train --completion SHELL`: a script that completes recipes, settings, methods and runs.

The script contains the settings, and the shell looks up recipes and runs, so completion starts no
program.
"""

import re
import shlex
from collections.abc import Iterator

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.names import SHORT_NAMES
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.commands import COMMANDS, get_usage
from resnet_recipes.inference.formats import FORMATS
from resnet_recipes.methods import ORDER
from resnet_recipes.recipe.build import get_setting_types
from resnet_recipes.recipe.library import GROUPS, Library, find_packaged_folder

#: The path of the script, which each shell reads when it starts; one file for both commands.
SCRIPT_PATHS = {
    "bash": "~/.resnet-recipes.bash   and in ~/.bashrc: source ~/.resnet-recipes.bash",
    "zsh": "~/.resnet-recipes.zsh   and in ~/.zshrc, after compinit: source ~/.resnet-recipes.zsh",
    "fish": "~/.config/fish/conf.d/resnet-recipes.fish",
}

#: Runs in bash, and in zsh with bashcompinit, so it uses only the features of both.
_BASH = """\
# resnet-train --completion @shell > @place
@head_resnet_recipes() {
    local line="${COMP_LINE:0:$COMP_POINT}" word before candidate file
    local offered=(@settings) names=(@recipes) runs=(last) prefix=none
    word="${line##* }"; before="${line%"$word"}"; before="${before% }"; before="${before##* }"
    word="${word#[\\"\\']}"
    for file in runs/*/config.yaml; do
        [[ -e "$file" ]] && printf -v file %q "${file%/config.yaml}" && runs+=("$file")
    done
    for file in recipes/*.yaml; do
        file="${file%.yaml}"
        [[ -e "$file.yaml" ]] && printf -v file %q "${file##*/}" && names+=("$file") \\
            && offered+=("recipe=$file")
    done
    case "$line" in
        resnet-recipes\\ *\\ *) ;;
        resnet-recipes\\ *) offered=(@commands) ;;
        *) offered+=(@flags) ;;
    esac
    offered+=("${runs[@]}")
    case "$before" in
        @verbs|resnet-train|train) offered+=("${names[@]}") ;;
        --describe) offered=("${names[@]}") ;;
        --to) offered=(@targets) ;;
        --resume) offered=(auto "${runs[@]}") ;;
        --extend) offered=("${runs[@]}") ;;
        --out|--csv|--png|--recipes) offered=() prefix="" ;;
    esac
    case "$word" in
        @places) offered=() prefix="${word%%=*}=" ;;
        model.weights=*)
            prefix=model.weights=
            offered=(model.weights=torchvision model.weights=last)
            ;;
    esac
    if [[ "$prefix" != none ]]; then
        for file in "${word#"$prefix"}"*; do
            [[ -d "$file" ]] && file="$file/"
            [[ -e "$file" ]] && printf -v file %q "$file" && offered+=("$prefix$file")
        done
    fi
    COMPREPLY=()
    for candidate in "${offered[@]}"; do
        case "$candidate" in
            *\\$\\'*) ;;  # control characters: after an open quote, what is in these would run
            "$word"*[=/]) COMPREPLY+=("$candidate") ;;
            "$word"*) COMPREPLY+=("$candidate ") ;;
        esac
    done
    # to bash, what follows '=' is a word of its own
    if [[ -n "$BASH_VERSION" && "$word" == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
    fi
}
complete -o nospace -F _resnet_recipes resnet-train resnet-recipes
"""

_FISH = """\
# resnet-train --completion fish > @place
function __resnet_recipes_named
    for file in recipes/*.yaml
        string replace -r '^recipes/(.*)[.]yaml$' "$argv\\$1" $file
    end
end
function __resnet_recipes_runs
    for file in runs/*/config.yaml
        string replace /config.yaml '' $file
    end
end
function __resnet_recipes_files
    for file in (__fish_complete_path (string replace $argv '' -- (commandline -ct)))
        echo $argv$file
    end
end
for command in resnet-train resnet-recipes
    complete -c $command -f -a "@settings"
    complete -c $command -f -a "(__resnet_recipes_named recipe=)"
    complete -c $command -f -a "last (__resnet_recipes_runs)"
    complete -c $command -f -a "model.weights=torchvision model.weights=last"
    for key in model.weights= @keys
        complete -c $command -n "string match -q '$key*' -- (commandline -ct)" -f \\
            -a "(__resnet_recipes_files $key)"
    end
    complete -c $command -l resume -x -a "auto last (__resnet_recipes_runs)"
    complete -c $command -l extend -x -a "last (__resnet_recipes_runs)"
    for flag in out csv png recipes
        complete -c $command -l $flag -r -F
    end
end
complete -c resnet-train -f -a "@flags"
complete -c resnet-train -n "__fish_is_first_arg" -f -a "@recipes (__resnet_recipes_named)"
complete -c resnet-train -l describe -x -a "@recipes (__resnet_recipes_named)"
complete -c resnet-recipes -n "__fish_is_first_arg" -f -a "@commands"
complete -c resnet-recipes -n "__fish_seen_subcommand_from train @spaced" -f \\
    -a "@recipes (__resnet_recipes_named)"
complete -c resnet-recipes -l to -x -a "@targets"
"""


def run(arguments: Arguments) -> int:
    """Print the script for a shell."""
    print(format_script(arguments.flags["--completion"]), end="")
    return 0


def format_script(shell: str) -> str:
    """Return the script for a shell. Raises RecipeError for an unknown shell."""
    if shell not in SCRIPT_PATHS:
        raise RecipeError([Problem("--completion", shell, "", valid=tuple(SCRIPT_PATHS))])
    head = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    commands = [name for name in COMMANDS if re.search(" (NAME|RECIPE)", get_usage(name).line)]
    keys = [*_iterate_file_settings()]
    parts = {
        "keys": " ".join(keys),
        "places": "|".join(f"{key}*" for key in keys),
        "shell": shell,
        "place": SCRIPT_PATHS[shell],
        "head": head,
        "settings": " ".join(_list_arguments())
        if shell == "fish"
        else shlex.join(_list_arguments()),
        "recipes": " ".join(Library().packaged),
        "targets": " ".join(FORMATS),
        "verbs": "|".join(commands),
        "spaced": " ".join(commands),
        "commands": " ".join(COMMANDS),
        "flags": " ".join([*get_usage("train").placeholders, "--help"]),
    }
    text = _FISH if shell == "fish" else _BASH
    for name, value in parts.items():
        text = text.replace(f"@{name}", value)
    return text


def _iterate_file_settings() -> Iterator[str]:
    """Yield the prefixes of settings whose values are files."""
    yield from ("data=", "data.cache=")
    for method in ORDER:
        for name in filter(None, (method.network_setting, method.soft_labels_setting)):
            yield f"methods.{method.name}.{name}="


def _list_arguments() -> list[str]:
    setting_types = get_setting_types()
    sections = {key.rpartition(".")[0] for key in setting_types if "." in key}
    methods = [key for key in setting_types if key.startswith("methods.") and key.count(".") == 1]
    return [
        *(f"recipe={name}" for name in Library().packaged),
        *(f"{key}=" for key in SHORT_NAMES),
        *(
            f"{group}={path.stem}"
            for group in GROUPS
            for path in sorted(find_packaged_folder().glob(f"{group}/*.yaml"))
        ),
        *(f"{key}=" for key in setting_types if key not in sections and key not in methods),
        *(f"{key}={{}}" for key in methods),
        *(f"~{key}" for key in methods),
    ]

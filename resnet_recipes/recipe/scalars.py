"""What text without quotes means in a recipe file.

YAML 1.2's core schema, less what YAML 1.1 reads otherwise.
"""

import re
from typing import Any

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?")
_OLD_BOOL = re.compile(r"y|n|yes|no|on|off", re.IGNORECASE)
_OLD_NUMBER = re.compile(
    r"[-+]?(0[0-9_]+|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*_[0-9_.]*"
    r"|[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?)"
)


def doubtful(text: str, key: str) -> tuple[str | None, str, str] | None:
    """Return the doubt, the rule and the fix for unquoted text that readers of YAML disagree on.

    `key` is the full name of the setting whose value it is.
    """
    section, _, name = key.rpartition(".")
    if text == "":
        return None, "has no value", "write null, {} or ''"
    rule = "is read differently by different YAML readers"
    if _OLD_BOOL.fullmatch(text):
        switch = f"{name}: {{}} turns it on, {name}: null off"
        fix = switch if section == "methods" else f"write true or false, or '{text}' in quotes"
        return f"{name}: {text}", rule, fix
    if _OLD_NUMBER.fullmatch(text):
        return text, rule, f"write a decimal number, or '{text}' in quotes"
    return None


def plain(text: str) -> Any:
    """Return the value of unquoted text: null, true, false, a number, or the text itself."""
    if text in ("null", "Null", "NULL", "~", ""):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text

"""Format values for people."""


def printable(text: object) -> str:
    """Return `text` with every character that could act on a terminal written as its escape code."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )


def clock_time(seconds: float) -> str:
    """Write a length of time as 0:41, 27:38 or 5:04:10."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def percent(share: float) -> str:
    """Write a share as whole percent; a small one as "<1 %", not as 0."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def pflops(count: float) -> str:
    """Write 10^15 floating-point operations with at least three digits."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def rate(per_second: float) -> str:
    """Write images per second with at least three digits."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"

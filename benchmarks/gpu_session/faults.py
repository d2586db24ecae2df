"""Report a measurement, or its failure, as a row."""

from collections.abc import Callable, Iterable, Iterator


def measure_or_report_fault(
    case: str, measure: Callable[..., Iterable[dict]], *arguments: object
) -> Iterator[dict]:
    """Yield the rows of a measurement, or a fault if it fails, so that others still run."""
    try:
        for row in measure(*arguments):
            yield {"case": case} | row
    except Exception as error:
        why = str(error).partition("\n")[0]
        yield {"case": case, "fault": f"{type(error).__name__}: {why}"}


def make_error_row(error: float, allowed: float, unit: str) -> dict:
    """Return the row of an error, which has a fault if it is larger than allowed, or NaN."""
    row = {"value": error, "unit": unit, "allowed": allowed}
    if error <= allowed:
        return row
    return row | {"fault": f"{error:.3g} {unit}; {allowed:g} allowed"}

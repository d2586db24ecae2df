"""What a check found, as a row."""


def verdict(error: float, allowed: float, unit: str) -> dict:
    """Return the row of an error, which has a fault if it is larger than allowed, or NaN."""
    row = {"value": error, "unit": unit, "allowed": allowed}
    if error <= allowed:
        return row
    return row | {"fault": f"{error:.3g} {unit}; {allowed:g} allowed"}

"""The recorder that writes what these tests read."""

from tests.report.conftest import driver, facts, recorder

__all__ = ["driver", "facts", "recorder"]

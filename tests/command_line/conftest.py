"""Fixtures for the tests of arguments: those of commands."""

from tests.commands.conftest import _work_in_empty_folder

__all__ = ["_work_in_empty_folder"]

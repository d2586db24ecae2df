"""Signals and the time limit ask a process to stop."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from resnet_recipes.jobs.ranks.signals import Interruption

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    installed = Interruption()
    installed.install()
    yield installed
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("name", "code"), [("SIGTERM", 75), ("SIGUSR1", 75), ("SIGHUP", 75), ("SIGINT", 130)]
)
def test_signal_requests_stop_with_its_exit_code(name, code, interruption):
    assert not interruption.is_requested()
    os.kill(os.getpid(), signal.Signals[name])
    assert (interruption.is_requested(), interruption.exit_code) == (True, code)
    assert interruption.reason == ("Ctrl-C" if name == "SIGINT" else name)


def test_signal_ignored_at_start_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        interruption = Interruption()
        interruption.install()
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interruption.is_requested()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_interruption_without_signal_has_preempted_code(interruption):
    assert (interruption.is_requested(), interruption.exit_code) == (False, 75)


def test_immediately_repeated_request_counts_once(interruption, monkeypatch):
    exits = []
    monkeypatch.setattr(os, "_exit", exits.append)
    now = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        now += 0.6
    assert (interruption.exit_code, exits) == (130, [])


def test_second_ctrl_c_ends_the_process_immediately(interruption, monkeypatch):
    now = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        now = 3.1
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


@pytest.mark.parametrize(
    ("max_wall", "stops_after"), [("100s", 95), ("10m", 570), ("3.5h", 3.5 * 3600 - 120)]
)
def test_limit_stops_a_run_before_max_wall(max_wall, stops_after, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limited = Interruption()
    limited.limit(max_wall, started_at=900.0)
    now = 900.0 + stops_after - 1
    assert not limited.is_requested()
    now = 900.0 + stops_after
    assert (limited.is_requested(), limited.exit_code) == (True, 75)
    assert max_wall in limited.reason


def test_interruption_without_limit_is_not_requested(monkeypatch):
    unlimited = Interruption()
    unlimited.limit("", started_at=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    assert not unlimited.is_requested()

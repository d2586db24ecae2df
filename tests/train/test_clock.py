import time

import torch

from resnet_recipes.train.clock import Clock


def test_the_clock_stands_still_while_paused():
    clock = Clock(torch.device("cpu"))
    with clock.paused():
        inside = clock.seconds()
        time.sleep(0.05)
        assert clock.seconds() == inside
    assert clock.seconds() - inside < 0.04


def test_a_resumed_clock_goes_on_where_it_stood():
    clock = Clock(torch.device("cpu"))
    clock.restart(100.0)
    time.sleep(0.01)
    assert 100.01 <= clock.seconds() < 100.5

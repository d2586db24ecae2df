"""LARS is that of MLPerf's reference: the rate is inside the momentum."""

import torch

from resnet_recipes.optim import LARS


def test_the_rate_of_a_step_stays_in_the_momentum_of_the_next():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = LARS(lr=1.0, weight_decay=0.0, no_decay="none").build(model)
    # a rate of 0 does not stop the momentum: 0.9 * 0.5
    for rate, weight in ((1.0, 0.5), (0.0, 0.05)):
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = torch.full_like(model.weight, 0.5)
        optimizer.step()
        assert abs(model.weight.item() - weight) < 1e-6

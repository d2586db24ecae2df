"""LARS against its formula by hand: that of MLPerf's reference, with the rate inside the momentum."""

import torch

from resnet_recipes.optim import LARS


def test_it_is_the_formula_over_fifty_steps_of_a_changing_rate(small, gradients):
    model = small()
    torch.nn.init.zeros_(model.fc.weight)           # no norm: its trust is 1 in the first step
    weights = [p.detach().double() for p in model.parameters()]
    momenta = [torch.zeros_like(w) for w in weights]
    optimizer = LARS(lr=1.0, weight_decay=5e-4, eps=1e-9).build(model)
    for step, grads in enumerate(gradients(model, 50, scale=0.01)):
        rate = 1.0 + step / 10
        for group in optimizer.param_groups:
            group["lr"] = rate
        for p, grad in zip(model.parameters(), grads, strict=True):
            p.grad = grad.clone()
        optimizer.step()
        for w, m, g in zip(weights, momenta, (grad.double() for grad in grads), strict=True):
            decay, trust = (5e-4 if w.ndim > 1 else 0.0), 1.0
            if decay and w.norm() > 0 and g.norm() > 0:
                trust = 0.001 * w.norm() / (g.norm() + decay * w.norm() + 1e-9)
            m.copy_(0.9 * m + rate * trust * (g + decay * w))
            w -= m
    for p, w in zip(model.parameters(), weights, strict=True):
        torch.testing.assert_close(p.double(), w, rtol=1e-6, atol=1e-5)


def test_the_rate_of_a_step_stays_in_the_momentum_of_the_next():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = LARS(lr=1.0, weight_decay=0.0, no_decay="none").build(model)
    for rate, weight in ((1.0, 0.5), (0.0, 0.05)):          # a rate of 0 does not stop what is on its way: 0.9 * 0.5
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = torch.full_like(model.weight, 0.5)
        optimizer.step()
        assert abs(model.weight.item() - weight) < 1e-6

"""The pages of methods and optimizers."""


def test_optimizer_page_explains_how_to_select_it(run_subcommand):
    out = run_subcommand("methods lamb")
    parts = "arXiv:1904.00962 optimizer.name=lamb optimizer.betas=[0.9,0.999] optimizer.lr=0.005"
    assert all(part in out for part in parts.split())

"""The pages of methods and optimizers."""


def test_optimizer_page_explains_how_to_select_it(run_subcommand):
    out = run_subcommand("methods lamb")
    parts = "arXiv:1904.00962 optimizer.name=lamb optimizer.betas=[0.9,0.999] optimizer.lr=0.005"
    assert all(part in out for part in parts.split())


def test_methods_suggests_method_after_another_word(run_command):
    message = run_command("resnet-recipes methods show mixup", 2).err
    assert (
        message
        == "error: unknown method show\n      try:   resnet-recipes methods mixup\n\n[exit 2]\n"
    )

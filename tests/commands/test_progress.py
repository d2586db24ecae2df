"""What commands say while they work."""

from resnet_recipes.commands.progress import say


def test_no_name_acts_on_the_terminal(capsys):
    say("resuming runs/\x1b[2J\nand\u202e")
    assert capsys.readouterr().err == "resuming runs/\\x1b[2J\nand\\u202e\n"

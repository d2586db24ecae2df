"""Values as people read them."""

import pytest

from resnet_recipes.report.text import clock_time, percent, printable, rate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (41.4, "0:41"), (59.6, "1:00"), (1658, "27:38"), (18250, "5:04:10")],
)
def test_a_length_of_time_reads_as_a_clock(seconds, text):
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    "hostile", ["a\x1b[31mb", "a\rb", "a\nb", "a\x07b", "a\u202eb", "a\x9b2Jb", "a\udcffb"]
)
def test_no_character_of_a_name_can_act_on_the_terminal(hostile):
    text = printable(hostile)
    assert text.isprintable()
    assert text.startswith("a\\")
    assert text.endswith("b")


def test_ordinary_names_stay_as_they_are():
    assert printable("n02105855 Shetland sheepdog \u72ac") == "n02105855 Shetland sheepdog \u72ac"


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.004, "<1 %"), (0.03, "3 %"), (1, "100 %")]
)
def test_a_small_share_differs_from_none(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(("speed", "text"), [(27310.4, "27,310"), (143.2, "143"), (8.237, "8.24")])
def test_slow_rates_keep_their_digits(speed, text):
    assert rate(speed) == text

from resnet_recipes.commands.table import table

ROWS = [
    {"NAME": "first", "TIME": "3:50", "TOP-1": "70.00 %", "STATE": "finished"},
    {"NAME": "b", "TIME": "-", "TOP-1": "-", "STATE": "failed"},
]


def test_numbers_are_to_the_right_and_text_to_the_left():
    assert table(ROWS) == [
        "NAME   TIME    TOP-1  STATE",
        "first  3:50  70.00 %  finished",
        "b         -        -  failed",
    ]


def test_columns_are_dropped_in_order_until_the_rest_fits():
    assert table(ROWS, ("TIME", "STATE"), 25)[0] == "NAME     TOP-1  STATE"
    assert table(ROWS, ("TIME", "STATE"), 24)[0] == "NAME     TOP-1  STATE"
    assert table(ROWS, ("TIME", "STATE"), 23) == [
        "NAME     TOP-1",
        "first  70.00 %",
        "b            -",
    ]
    assert table(ROWS, ("COST", "TIME"), 5)[0] == "NAME     TOP-1  STATE"


def test_without_a_room_the_terminal_has_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    assert "TIME" not in table(ROWS, ("TIME",))[0]
    monkeypatch.setenv("COLUMNS", "80")
    assert "TIME" in table(ROWS, ("TIME",))[0]

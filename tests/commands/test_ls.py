"""The table of recipes."""

import json
import re


def test_ls_lists_packaged_and_own_recipes(run_subcommand, recipes):
    (recipes / "mine.yaml").write_text("defaults: [hot]\nmax_duration: 10ep\n")
    (recipes / "mild.yaml").write_text("name: mild\n")
    (recipes / "broken.yaml").write_text("seed: yes\n")
    (recipes / "orphan.yaml").write_text("defaults: [nope]\n")
    out = run_subcommand("ls")
    rows = {
        line.split()[0]: " ".join(line.split())
        for line in re.sub(r"\n +", " ", out).splitlines()
        if line
    }
    assert "based on hot" in rows["mine"]
    assert rows["mine"].split()[1] == "30"
    assert "cannot be read: recipes/broken.yaml:1: seed: yes is read differently" in rows["broken"]
    assert "cannot be read: recipes/orphan.yaml:1: unknown recipe nope" in rows["orphan"]
    assert rows["mine"].endswith("(recipes/mine.yaml)")
    assert rows["orphan"].count("recipes/orphan.yaml") == 1
    assert "recipes/mild.yaml, hides the packaged recipe of the same name" in rows["mild"]
    assert max(map(len, out.splitlines())) <= 80


def test_ls_shows_nearest_published_result_of_own_recipe(run_subcommand, recipes):
    (recipes / "mine.yaml").write_text(
        "defaults: [hot]\nmax_duration: 10ep\nscale_schedule_ratio: 1\n"
        "published: [{top1: 70, epochs: 90}, {top1: 60, epochs: 9}, {top1: 50}]\n"
    )
    out = run_subcommand("ls")
    assert "60%, 9 epochs" in out
    ours = out.partition("BASELINES")[0]
    assert "25.3 min," in ours
    assert "23.8 min*," in out
    assert "* time as defined by DAWNBench or MLPerf; other times are training time." in out


def test_ls_survives_hostile_recipe_descriptions(run_subcommand, recipes):
    (recipes / "odd.yaml").write_text(
        'about: "\\x1b[2J"\nmax_duration: [1]\npublished: [{top1: [1], minutes: x}]\n'
    )
    (recipes / "odder.yaml").write_text(
        "about: {a: 1}\nscale_schedule_ratio: many\nmax_duration: 3ep\npublished: 7\n"
    )
    out = run_subcommand("ls")
    assert "\x1b" not in out
    assert {"odd", "odder"} <= {line.split()[0] for line in out.splitlines() if line}


def test_ls_json_has_the_columns_of_the_table(run_subcommand):
    recipes = {item["name"]: item for item in json.loads(run_subcommand("ls --json"))}
    assert recipes["mild"]["epochs"] == "36"
    assert recipes["hot"]["published"]["top1"] == 79.86
    assert [recipes[name]["published"]["clock"] for name in ("hot", "mild_mlperf")] == [
        "",
        "MLPerf",
    ]

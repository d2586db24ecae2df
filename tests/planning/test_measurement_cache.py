"""A measurement is found only for the same facts and machine."""

from resnet_recipes.planning import measurement_cache
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.measurement_cache import make_key, read_measurement, write_measurement

SPEEDS = Speeds({88: (0.001,) * 5})


def test_read_measurement_needs_equal_facts(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = make_key({"model": "resnet50"})
    assert read_measurement(key) is None
    write_measurement(key, SPEEDS)
    assert read_measurement(key).speeds == SPEEDS
    assert read_measurement(make_key({"model": "resnet18"})) is None
    with monkeypatch.context() as other:
        other.setattr(measurement_cache, "count_cores", lambda: 1000)
        assert read_measurement(make_key({"model": "resnet50"})) is None
    next((tmp_path / "resnet-recipes/speeds").iterdir()).write_text("{}")
    assert read_measurement(key) is None

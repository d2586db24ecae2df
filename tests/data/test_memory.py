"""The memory that is left within a container's limit."""

from pathlib import Path

from resnet_recipes.data.machine import _NO_LIMIT, _container


def test_the_file_cache_of_a_container_counts_as_free(tmp_path: Path):
    assert _container(tmp_path) == _NO_LIMIT
    (tmp_path / "memory.max").write_text("max\n")
    assert _container(tmp_path) == _NO_LIMIT
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 600\n")
    assert _container(tmp_path) == 700
    (tmp_path / "memory.stat").write_text("anon 900\n")
    assert _container(tmp_path) == 100

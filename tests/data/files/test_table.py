"""Tables of paths and labels.

Common formats are read, and errors name the line.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.files import table


@pytest.fixture
def listed_images(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c, d.jpg"):
        (tmp_path / name).write_bytes(b"12345")
    return tmp_path


def read_table(
    folder: Path, text: str | bytes, name: str = "labels.csv"
) -> list[tuple[str, str, str]]:
    """Return (name, label, split) of each row."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [row[1:] for row in table.read_rows(path)]


ROWS = [("a.jpg", "cat", ""), ("c, d.jpg", "dog", "")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('path,label\na.jpg,cat\n"c, d.jpg",dog\n', "labels.csv"),
        ('a.jpg,cat\r\n"c, d.jpg",dog', "labels.csv"),
        ('path\tlabel\na.jpg\tcat\n"c, d.jpg"\tdog\n'.encode("utf-16"), "labels.csv"),
        ("\ufefflabel;file;width\ncat;a.jpg;3\n\ndog;c, d.jpg;4\n", "labels.csv"),
        ("image\tclass\na.jpg\tcat\nc, d.jpg\tdog\n", "labels.tsv"),
        (
            '{"file_name": "a.jpg", "label": "cat"}\n{"label": "dog", "file_name": "c, d.jpg", '
            '"boxes": [1]}\n',
            "m.jsonl",
        ),
    ],
)
def test_label_tables_of_many_programs_are_parsed(listed_images, text, name):
    assert read_table(listed_images, text, name) == ROWS


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("path,label,split\na,x,Train\nb,y,validation\n", ["train", "validation"]),
        ("path,label\ntrain/a,x\ntest/b,y\n", ["train", "test"]),
        ("path,label\nx/train/a,x\n", [""]),
    ],
)
def test_table_split_is_column_or_first_folder(listed_images, text, splits):
    assert [row[2] for row in read_table(listed_images, text)] == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty\n    hint:  name the columns"),
        ("path,label\n", "has no rows"),
        (b"path,label\n\xe4,x\n", "is not text in UTF-8\n    hint:  save it as UTF-8"),
        ("id,target\na.jpg,x\n", "name the columns in the first line: path,label"),
        (
            "a,b,c\n1,2,3\n",
            "has no column of paths (file_name, path, file, image) or labels (label, "
            "class); its columns are a, b, c",
        ),
        ("path,text\na.jpg,x\n", "has no column of labels"),
        ('path,label\n"a.jpg,x\n', "cannot be read as a table"),
        (
            "path,label\na.jpg,cat\nb.jpg,\n",
            "has 1 row without a file or a label: line 3",
        ),
        ("path,label\na\0.jpg,cat\n", "line"),
        ("path,label\na.jpg,cat\nb.jpg/,cat\n", "without a file or a label: line 3"),
        (
            "path,label,split\na.jpg,x,train\nb.jpg,y,holdout\n",
            "split is not training or validation: holdout",
        ),
        (
            "path,label\na.jpg,x\nnone.jpg,y\n",
            "lists missing files, 1 of 2: none.jpg in line 3",
        ),
        ("path,label\na.jpg,x\n./a.jpg,y\n", "names images twice, 1 of 2: ./a.jpg in line 3"),
        ("path,label\na.jpg,x\n.,y\n", "lists folders, 1 of 2: . in line 3"),
    ],
)
def test_label_table_errors_name_their_line(listed_images, text, message):
    path = listed_images / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(NotReadyError) as caught:
        table.make_listing(path, table.read_rows(path))
    assert message in str(caught.value)
    assert all(problem.advice for problem in caught.value.problems)


def test_label_table_with_backslashes_gets_hint(listed_images):
    (listed_images / "labels.csv").write_text("path,label\nants\\a.jpg,ant\n")
    with pytest.raises(NotReadyError, match=r"hint:  write / instead of \\; in WSL"):
        table.make_listing(
            listed_images / "labels.csv", table.read_rows(listed_images / "labels.csv")
        )


def test_label_table_reports_all_kinds_of_rows(listed_images):
    lines = ["path,label,split", "a.jpg,x,train", "a.jpg,y,train", "b.jpg,,train", "b.jpg,y,other"]
    lines += [f"none{number}.jpg,x,val" for number in range(9)]
    with pytest.raises(NotReadyError) as caught:
        read_table(listed_images, "\n".join(lines))
    clauses = [problem.clause for problem in caught.value.problems]
    assert clauses[0] == "has 1 row without a file or a label: line 4"
    assert clauses[1].startswith("has rows whose split is not training or validation: other")
    assert clauses[2].startswith("lists missing files, 9 of 12: none0.jpg in line 6, none1.jpg")
    assert clauses[2].endswith("none4.jpg in line 10 and 4 more")
    assert clauses[3] == "names images twice, 1 of 12: a.jpg in line 3"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["[1]\n", "{\n", "[" * 100_000 + "\n"])
def test_label_table_rejects_other_json_lines_and_fifos(listed_images, text):
    with pytest.raises(NotReadyError, match="cannot be read as a table"):
        read_table(listed_images, text, "metadata.jsonl")
    os.mkfifo(listed_images / "labels.csv")
    with pytest.raises(NotReadyError, match="Not a regular file"):
        table.read_rows(listed_images / "labels.csv")


def test_label_table_follows_absolute_paths_and_links(listed_images, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(listed_images)
    (tmp_path / "elsewhere" / "labels.csv").write_text(
        f"path,label\n{tmp_path}/link/a.jpg,x\n../b.jpg,y\n"
    )
    path = tmp_path / "elsewhere" / "labels.csv"
    listing = table.make_listing(path, table.read_rows(path))
    assert [Path(place).read_bytes() for place in listing.paths] == [b"12345"] * 2
    assert (listing.sizes.tolist(), listing.classes) == ([5, 5], ("x", "y"))


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na.jpg,cat\n",
        "\ufeffpath;label\na.jpg;cat\n",
        "a.jpg,cat\nb.jpg,dog\n",  # two columns without a header
        "\n\npath,label\na.jpg,cat\n",
        '"a\nb",path,label\n1,a.jpg,cat\n',
        "path,label",
    ],
)
def test_label_column_is_found_in_first_line(text, tmp_path, monkeypatch):
    path = tmp_path / "train.csv"
    path.write_text(text, encoding="utf-8")
    assert table.has_labels(path)
    path.write_text("file_name,text\na.jpg,a cat\n")
    monkeypatch.setattr(table, "_read_cells", lambda _: pytest.fail("read as a whole"))
    assert not table.has_labels(path)


def test_listing_requests_thousand_sizes_per_task(listed_images, monkeypatch):
    tasks, submit = [], ThreadPoolExecutor.submit

    def record_task(self, *work):
        tasks.append(work)
        return submit(self, *work)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", record_task)
    for number in range(2500):
        (listed_images / f"{number}.png").write_bytes(bytes(number % 7))
    path = listed_images / "labels.csv"
    path.write_text("path,label\n" + "".join(f"{number}.png,a\n" for number in range(2500)))
    listing = table.make_listing(path, table.read_rows(path))
    assert len(tasks) == 3
    sizes = dict(zip(listing.names, listing.sizes.tolist(), strict=True))
    assert sizes == {f"{number}.png": number % 7 for number in range(2500)}

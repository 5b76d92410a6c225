"""YAML through a process of its own: what comes back, and what happens when it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plugin.base.errors import ConfigError
from plugin.settings.nvidia.yaml_file import read_document

REPOSITORY = Path(__file__).parents[3]


def written(folder: Path, content: bytes) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(content)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "content"),
    [
        pytest.param("a: {b: [1, two, 3.5, null, yes]}", {"a": {"b": [1, "two", 3.5, None, True]}}, id="plain values"),
        pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="an anchor"),
        pytest.param(
            "a: &x {b: 1, d: 2}\nc:\n  <<: *x\n  b: 3", {"a": {"b": 1, "d": 2}, "c": {"d": 2, "b": 3}}, id="a merge key"
        ),
        pytest.param("a: 2026-01-02", {"a": "2026-01-02"}, id="a date stays a text"),
        pytest.param("1: a", {"1": "a"}, id="a number as a key is a text"),
        pytest.param("a: ü", {"a": "ü"}, id="letters of the world"),
        pytest.param("", None, id="nothing"),
        pytest.param('{"a": [1]}', {"a": [1]}, id="json"),
    ],
)
def test_content(tmp_path: Path, text: str, content: object) -> None:
    assert read_document(written(tmp_path, text.encode())).content == content


def test_lines_are_known_by_the_path_of_a_key(tmp_path: Path) -> None:
    document = read_document(written(tmp_path, b"a:\n  b:\n  - c: 1\n  - c: 2\n"))
    assert document.where("a.b[1].c") == f"{document.origin}:4"
    assert document.where("x") == document.origin


BOMB = "a0: &a0 [1,1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"a: [", "not valid yaml", id="not closed"),
        pytest.param(b"a: 1\na: 2", 'line 2: key "a" is given twice', id="a key twice"),
        pytest.param(b'{"a": 1, "a": 2}', 'key "a" is given twice', id="a key twice in json"),
        pytest.param(b"? [a]\n: 1", "a key must be a text", id="a list as a key"),
        pytest.param(b"a: 1\n---\na: 2", "not valid yaml", id="two documents"),
        pytest.param(b"a: !!python/object/apply:os.system [true]", "", id="an object of python"),
        pytest.param(BOMB.encode(), "too large", id="aliases without end"),
        pytest.param(b"a: &a [*a]", "nested too deeply", id="an alias of itself"),
        pytest.param(b"[" * 5000, "not valid yaml", id="nested without end"),
        pytest.param(b"a: 1\nb: " + b"9" * 5000, "line 2: not a value: 999", id="a number of 5,000 digits"),
        pytest.param(b"a: 1\nb: 0x" + b"f" * 5000, "line 2: a number of", id="a number of 5,000 hexadecimal digits"),
        pytest.param(b'{"a":\n' + b"9" * 5000 + b"}", "line 2: not a value: 999", id="5,000 digits in json"),
        pytest.param(b"\xff", "not utf-8", id="not text"),
        pytest.param(b"a: \x00", "not valid yaml", id="a zero byte"),
        pytest.param(b" " * 1_100_000, "larger than", id="too large"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = written(tmp_path, content)
    if words:
        with pytest.raises(ConfigError) as raised:
            read_document(path)
        assert words in raised.value.message
        assert str(path) in raised.value.message
    else:
        assert read_document(path).content == {"a": [True]}  # plain values: nothing is constructed


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        read_document(tmp_path / "nowhere.yaml")


@pytest.mark.slow
def test_the_daemon_itself_never_loads_yaml(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from plugin.settings.nvidia.yaml_file import read_document; "
    script += "assert read_document(Path(sys.argv[1])).content == {'a': 1}; print(*sys.modules)"
    command = [sys.executable, "-c", script, str(written(tmp_path, b"a: 1"))]
    loaded = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    assert "plugin.settings.nvidia.yaml_file" in loaded
    assert not {"yaml", "_yaml"} & set(loaded)

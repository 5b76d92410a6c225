"""YAML text into plain values with places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.declaration.spec.text.document import MAX_BYTES, read_document
from provision.declaration.spec.text.excerpt import render_finding
from provision.declaration.spec.text.findings import Finding, Place, Severity, dotted

TEXT = b"""\
first: 1
second:
  - plain
  - {deep: "quoted"}
"""


def test_places_of_keys_and_values_count_from_one() -> None:
    document = read_document(TEXT, "x.yaml")
    assert document.content == {"first": 1, "second": ["plain", {"deep": "quoted"}]}
    assert str(document.key_place(("second",))) == "x.yaml:2:1"
    assert str(document.value_place(("second", 0))) == "x.yaml:3:5"
    assert str(document.key_place(("second", 1, "deep"))) == "x.yaml:4:6"
    assert document.value_place(("second", 1, "deep")) == Place("x.yaml", 4, 12, 8, '  - {deep: "quoted"}')


def test_a_key_that_is_not_written_stands_where_the_nearest_key_above_it_does() -> None:
    document = read_document(TEXT, "x.yaml")
    assert str(document.value_place(("second", 1, "other"))) == "x.yaml:4:5"
    assert str(document.value_place(("third", "key"))) == "x.yaml:1:1"


def test_only_unquoted_values_are_remembered_as_they_were_spelled() -> None:
    document = read_document(b"a: 550.10\nb: '550.10'\n", "x.yaml")
    assert (document.written(("a",)), document.written(("b",))) == ("550.10", None)


def test_byte_order_mark_and_windows_line_ends_are_read() -> None:
    document = read_document("\ufeffa: 1\r\nb: 2\r\n".encode(), "x.yaml")
    assert document.content == {"a": 1, "b": 2}
    assert document.findings == []
    assert document.value_place(("b",)).text == "b: 2"


def test_unusual_line_ends_count_as_the_parser_counts_them() -> None:
    document = read_document("a: 1 # \u2028b: 2\rc: &x 3\n".encode(), "x.yaml")
    (finding,) = document.findings
    assert (finding.place.line, finding.place.text) == (3, "c: &x 3")


def test_a_large_text_is_refused_before_it_is_parsed() -> None:
    (finding,) = read_document(b"[" * (MAX_BYTES + 1), "x.yaml").findings
    assert finding.message == "is larger than 256 KiB"


def test_what_cannot_be_read_does_not_hide_the_rest() -> None:
    document = read_document(b"a: !vault x\nb: &x 1\nc: *x\nc: 2\n<<: {}\n", "x.yaml")
    assert [str(each.place).removeprefix("x.yaml:") for each in document.findings] == [
        "2:4",
        "3:4",
        "1:4",
        "4:1",
        "5:1",
    ]
    assert isinstance(document.content, dict)
    assert document.content["b"] == 1


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        pytest.param('a: "b\nc: d\n', (1, 4), "these quotes are not closed", id="quotes, to the end"),
        pytest.param("a: 'b\n---\nc: d\n", (1, 4), "these quotes are not closed", id="quotes, to a new document"),
        pytest.param("a: [\n", (1, 4), "these brackets are not closed", id="brackets, to the end"),
        pytest.param("a:\n  b: [c, d\ne: f\n", (2, 6), "these brackets are not closed", id="brackets, to a key above"),
        pytest.param("a: {b: c\nd: {}\n", (1, 4), "these brackets are not closed", id="brackets, to the next key"),
        pytest.param("a:\n  b\n  c: d\n", (2, 3), "this line is neither a key nor a value", id="a key without colon"),
        pytest.param("a:\n  b:c\n  d: e\n", (2, 3), "this line is neither a key nor a value", id="a colon, no space"),
        pytest.param(
            "a:\n  b: c\n  d\n", (3, 3), "this line is neither a key nor a value", id="a last key without colon"
        ),
        pytest.param("a: @b\n", (1, 4), "a value cannot begin with @", id="a reserved character"),
        pytest.param("a: b\rc: \x07\r", (2, 4), "contains the control character U+0007", id="ends of lines of old"),
        pytest.param(b"a: b\rc: \xff", (2, 4), "is not UTF-8 from here on", id="no UTF-8 behind such ends"),
    ],
)
def test_broken_text_is_told_where_it_is_mended(text: str | bytes, place: tuple[int, int], message: str) -> None:
    """The place was where the parser gave up: below the mistake, or past the end, where no line can be shown."""
    found = read_document(text if isinstance(text, bytes) else text.encode(), "x").findings
    assert [((each.place.line, each.place.column), each.message) for each in found] == [(place, message)]
    assert found[0].place.text.strip()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="ab:-{}[]\"'#&*!|>%@`\n\t ,?", max_size=60).map(str.encode))
def test_any_bytes_give_values_or_findings_and_never_an_exception(data: bytes) -> None:
    document = read_document(data, "x.yaml")
    for finding in document.findings:
        assert finding.place.line >= 1
        assert render_finding(finding)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(("spec", "driver"), "spec.driver", id="words are joined by dots"),
        pytest.param(("node", "taints", 0, "key"), "node.taints[0].key", id="an entry is a number in brackets"),
        pytest.param(("labels", "a.b/c"), 'labels["a.b/c"]', id="a key that is no word is quoted"),
        pytest.param((), "", id="the whole text has no key"),
    ],
)
def test_dotted_keys(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def test_carets_stand_below_the_value_in_long_lines_and_behind_tabs() -> None:
    line = "\t" + "x" * 200 + " here"
    finding = Finding(Severity.ERROR, Place("x.yaml", 1, 203, 4, line), "", "is wrong")
    _, text, pointer = render_finding(finding).splitlines()
    assert text[pointer.index("^") : pointer.rindex("^") + 1] == "here"
    assert len(text) < 120


def test_colour_wraps_words_and_changes_no_letter() -> None:
    finding = Finding(Severity.WARNING, Place("x.yaml", 1, 1, 1, "a"), "a", "is doubtful", "look")
    coloured = render_finding(finding, colour=True)
    assert "\033[1;33mwarning:\033[0m" in coloured
    assert "\033" not in render_finding(finding)

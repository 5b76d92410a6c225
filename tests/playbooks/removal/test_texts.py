"""Grapnel's part is taken out of a text that somebody else has edited; what both have changed stays."""

from __future__ import annotations

import json

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText
from ansible_collections.grapnel.node.plugins.module_utils.removal.texts import reverse_lines, take_out

MAIN, JSON, OWN = "/etc/containerd/config.toml", "/etc/docker/daemon.json", "/etc/grapnel/node.json"
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
BEFORE = "version = 2\n\n[debug]\n  level = 'info'\n"
WRITTEN = f"version = 2\n{IMPORT}\n[debug]\n  level = 'info'\n"
OURS = {"nvidia": {"path": "/usr/lib/grapnel/hook/grapnel-runtime"}}


def text(content: str | None, path: str = MAIN) -> FileText | None:
    return None if content is None else FileText(path, content, 0o644, (0, 0))


@pytest.mark.parametrize(
    ("before", "written", "present", "left"),
    [
        pytest.param(BEFORE, WRITTEN, WRITTEN + "oom_score = 1\n", BEFORE + "oom_score = 1\n", id="a line behind ours"),
        pytest.param(BEFORE, WRITTEN, "# by hand\n" + WRITTEN, "# by hand\n" + BEFORE, id="a line before ours"),
        pytest.param(
            BEFORE, WRITTEN, WRITTEN.replace("info", "warn"), BEFORE.replace("info", "warn"), id="another value"
        ),
        pytest.param(BEFORE, WRITTEN, "version = 3\n", "version = 3\n", id="a package has brought its own file"),
        pytest.param(
            BEFORE, WRITTEN, WRITTEN.replace("/*", "/a*"), WRITTEN.replace("/*", "/a*"), id="our line became theirs"
        ),
        pytest.param(
            "# empty\n",
            f"# empty\nversion = 3\n{IMPORT}",
            f"# empty\nversion = 3\n{IMPORT}[a]\n",
            None,
            id="what it says hangs on our version",
        ),
        pytest.param(
            None,
            f"version = 3\n{IMPORT}",
            f"version = 3\n{IMPORT}[debug]\n",
            None,
            id="a file of ours that they went on with",
        ),
        pytest.param("a\nb\n", "a\nB\n", "a\nB # mine\n", "a\nB # mine\n", id="a line of ours was changed"),
    ],
)
def test_lines(before: str | None, written: str, present: str, left: str | None) -> None:
    taken = take_out(MAIN, text(before), text(written), text(present))

    assert taken.is_whole is (left is not None)
    assert taken.text == text(present if left is None else left)


def test_lines_that_both_have_changed_are_left_to_people() -> None:
    before, written = "a = 1\nb = 1\n", f"a = 1\n{IMPORT}c = 3\nb = 1\n"

    taken = take_out(MAIN, text(before), text(written), text(f"a = 1\n{IMPORT}c = 4\nb = 1\n"))

    assert not taken.is_whole


@pytest.mark.parametrize(
    ("before", "written", "present", "left"),
    [
        pytest.param(
            {"bridge": "none"},
            {"bridge": "none", "runtimes": OURS},
            {"bridge": "br0", "runtimes": OURS},
            {"bridge": "br0"},
            id="another value beside ours",
        ),
        pytest.param(
            {},
            {"runtimes": OURS},
            {"runtimes": {**OURS, "mine": {"path": "/x"}}},
            {"runtimes": {"mine": {"path": "/x"}}},
            id="a second runtime",
        ),
        pytest.param(
            {"a": 1},
            {"a": 1, "runtimes": OURS},
            {"a": 1, "runtimes": {"nvidia": {"path": "/x"}}},
            {"a": 1, "runtimes": {"nvidia": {"path": "/x"}}},
            id="our name is theirs now",
        ),
        pytest.param(
            {"a": 1},
            {"a": 1, "features": {"cdi": True}},
            {"a": 1, "features": {"cdi": False}},
            {"a": 1, "features": {"cdi": False}},
            id="our setting was changed",
        ),
        pytest.param(
            None,
            {"runtimes": OURS},
            {"runtimes": OURS, "debug": True},
            {"debug": True},
            id="a file of ours that they went on with",
        ),
        pytest.param(
            None,
            {"runtimes": OURS, "features": {"cdi": True}},
            {"features": {"cdi": True}, "runtimes": OURS},
            None,
            id="ours in another order",
        ),
    ],
)
def test_json(
    before: dict[str, object] | None, written: object, present: object, left: dict[str, object] | None
) -> None:
    texts = [None if tree is None else text(json.dumps(tree, indent=2), JSON) for tree in (before, written, present)]

    taken = take_out(JSON, *texts)

    assert taken.is_whole
    assert (None if taken.text is None else json.loads(taken.text.content)) == left


def test_json_keeps_the_layout_of_its_author_where_lines_are_enough() -> None:
    before = '{\n  "a": 1,\n  "z": 2\n}\n'
    written = '{\n  "a": 1,\n  "runtimes": {"nvidia": {"path": "/x"}},\n  "z": 2\n}\n'
    present = written.replace('"z": 2', '"z":   3')

    taken = take_out(JSON, text(before, JSON), text(written, JSON), text(present, JSON))

    assert taken.text == text(before.replace('"z": 2', '"z":   3'), JSON)


def test_json_that_is_broken_is_left_to_people() -> None:
    assert not take_out(JSON, text("{}", JSON), text('{"a": 1}', JSON), text('{"a": 1', JSON)).is_whole


def test_a_file_of_grapnels_alone_goes_whatever_it_says() -> None:
    assert take_out(OWN, None, text("{}", OWN), text('{"a": 1}', OWN)).text is None


def test_nothing_is_lost_of_lines_without_an_end() -> None:
    assert reverse_lines("a", "a\nours", "a\nours\ntheirs") is None or "theirs" in str(
        reverse_lines("a", "a\nours", "a\nours\ntheirs")
    )

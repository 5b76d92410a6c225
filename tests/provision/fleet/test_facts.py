"""Facts are under the control of root on a node: they are within limits, or an error about that node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.errors import FactsError
from provision.declaration.fleet.facts.node import MAX_BYTES, parse_facts
from tests.provision.samples import as_json, configured, make_facts

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, Any]
LONG = "x" * 5000
AVAILABLE = {"version": "580.65.06-0ubuntu1", "source": "nvidia-graphics-drivers-580", "depends": ["libc6"] * 12}


def document(**changes: object) -> Document:
    return as_json(make_facts()) | {"available": {}} | changes


def refusal(data: bytes | Document) -> str:
    with pytest.raises(FactsError) as raised:
        parse_facts(data, node="n9")
    message = raised.value.message
    assert message.startswith("facts of n9: ")
    assert len(message) < 400
    assert message.isprintable()
    return message


def put(*path: str | int, value: object) -> Callable[[], Document]:
    def changed() -> Document:
        whole = as_json(configured())
        whole["device_holders"] = [{"pid": 7, "command": "train", "devices": []}]
        whole["gpus"] = [{"address": "0000:10:00.0", "vendor": "10de", "device": "20b0", "class": "030200"}]
        part: Any = whole
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        return whole

    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "path"),
    [
        pytest.param(put("node", "hostname", value="n1\n"), "$.node.hostname", id="a line feed at the end"),
        pytest.param(put("node", "hostname", value="n1\x1b[2J"), "$.node.hostname", id="a sequence for a terminal"),
        pytest.param(put("node", "hostname", value=LONG), "$.node.hostname", id="a very long name"),
        pytest.param(put("node", "python", value="3.\N{SUPERSCRIPT TWO}"), "$.node.python", id="a digit of no number"),
        pytest.param(put("gpus", 0, "address", value="../../etc"), "$.gpus[0].address", id="a path in a PCI address"),
        pytest.param(put("gpus", 0, "numa_node", value=1.0), "$.gpus[0].numa_node", id="a fraction for an integer"),
        pytest.param(put("module", "refcount", value=10**4000), "$.module.refcount", id="a number of 4001 digits"),
        pytest.param(put("module", "refcount", value=True), "$.module.refcount", id="a truth for an integer"),
        pytest.param(put("module", "holders", value=["m"] * 65), "$.module.holders", id="many modules"),
        pytest.param(
            put("packages", "libcuda1", "version", value="1:2:3 4"), '$.packages["libcuda1"].version', id="no version"
        ),
        pytest.param(
            put("packages", "libcuda1", "version", value="9" * 200), '$.packages["libcuda1"].version', id="long version"
        ),
        pytest.param(put("packages", "--purge", value=None), "`key` in `$.packages", id="an option as a package"),
        pytest.param(
            put("available", "libcuda1", value=[AVAILABLE] * 513), '$.available["libcuda1"]', id="many versions"
        ),
        pytest.param(
            put("files", "/etc/containerd/config.toml", "content", value="x" * (256 * 1024 + 1)),
            '$.files["/etc/containerd/config.toml"].content',
            id="a large file",
        ),
        pytest.param(put("files", "/etc/\x1b[2J", value=None), "`key` in `$.files`", id="a sequence in a path"),
        pytest.param(
            put("services", "containerd.service", "newer_files", value=["/etc/\x1b[2J"]),
            '$.services["containerd.service"].newer_files[0]',
            id="a sequence in the path of a newer file",
        ),
        pytest.param(put("installed", "hook", "digest", value="a b"), '$.installed["hook"].digest', id="no digest"),
        pytest.param(put("device_holders", 0, "pid", value=1 << 23), "$.device_holders[0].pid", id="no process id"),
    ],
)
def test_a_value_out_of_bounds_is_named_by_its_path(changed: Callable[[], Document], path: str) -> None:
    assert path in refusal(changed())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply", id="deep arrays"),
        pytest.param(b'{"z":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply", id="deep objects"),
        pytest.param(b'{"z":"\xff"}', "", id="not UTF-8, in a field that nobody knows"),
        pytest.param(b'{"z":"\\ud800"}', "", id="half of a surrogate pair"),
        pytest.param(b'{"z":NaN}', "", id="not a number"),
        pytest.param(b'{"z":1e999}', "", id="infinite"),
        pytest.param(b'{"z":' + b"9" * 5000 + b"}", "", id="5,000 digits"),
        pytest.param(b"[" + b" " * MAX_BYTES + b"]", "more than the limit of 4,194,304", id="large"),
        pytest.param(b"\xef\xbb\xbf{}", "", id="a byte order mark"),
        pytest.param({"schema": float("nan")}, "not a JSON document", id="parsed elsewhere, not a number"),
        pytest.param({"schema": object()}, "not a JSON document", id="parsed elsewhere, an object"),
    ],
)
def test_what_is_no_document_is_an_error_of_that_node(data: bytes | Document, reason: str) -> None:
    assert reason in refusal(data)


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        pytest.param('"hostname": "n1"', '"hostname": "n2", "hostname": "n1"', id="a field"),
        pytest.param('"files": {}', '"files": {"/etc/a": null, "/etc/a": null}', id="an entry"),
        pytest.param('"schema"', '"rack": {"x": 1, "x": 2}, "schema"', id="something that nobody reads"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(once: str, twice: str) -> None:
    whole = json.dumps(document())
    assert once in whole
    assert "is given twice" in refusal(whole.replace(once, twice, 1).encode())


def test_names_of_processes_are_made_printable_and_never_refused() -> None:
    holder = {
        "pid": 7,
        "command": "a\x1b]0;pwned\x07\nb" + LONG,
        "unit": "\x1b[1m.scope",
        "devices": ["/dev/nvidia0\n"],
    }
    package_manager = {
        "name": "apt",
        "locked_by": {"pid": 8, "command": "\u202etpa"},
        "lists_error": "E: \x1b[31m" + LONG,
    }
    facts = parse_facts(document(device_holders=[holder], package_manager=package_manager))
    (read,) = facts.device_holders
    assert read.command.startswith(r"a\x1b]0;pwned\x07\nbx")
    assert len(read.command) == 128
    assert (read.unit, read.devices) == (r"\x1b[1m.scope", (r"/dev/nvidia0\n",))
    manager = facts.package_manager
    assert manager.locked_by is not None
    assert manager.locked_by.command == r"\u202etpa"
    assert manager.lists_error is not None
    assert manager.lists_error.isprintable()
    assert len(manager.lists_error) == 2000


@pytest.mark.slow
def test_a_machine_with_every_driver_of_a_large_repository_is_within_limits() -> None:
    available = {f"libnvidia-part{number}-580": [AVAILABLE] * 30 for number in range(200)}
    whole = json.dumps(document(available=available)).encode()
    assert len(parse_facts(whole).available) == 200
    assert len(whole) < MAX_BYTES


def test_a_message_does_not_repeat_what_a_node_wrote_at_length() -> None:
    assert "\x1b" not in refusal(document(schema="\x1b[2J" + LONG))

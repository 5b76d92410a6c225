"""What is kept of Nodes, and what is written on them."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from provision.cluster.kubernetes.objects.nodes import Taint
from provision.controller.marker import Mark, Word, render_mark
from provision.controller.nodes import NOT_READY, NodeBook, see
from tests.provision.controller.samples import node


class Bell:
    """Counts how often it was rung."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def tainted(version: int = 1) -> object:
    found = node(version=version)
    taints = (Taint(key=NOT_READY, effect="NoSchedule"), Taint(key="theirs", effect="NoExecute", value="x"))
    return structs.replace(found, spec=structs.replace(found.spec, taints=taints))


def test_heartbeats_wake_nobody() -> None:
    bell = Bell()
    book = NodeBook(bell)
    book.put(node())
    assert bell.rung == 1
    book.put(node(version=2))
    assert bell.rung == 1
    book.put(node(version=3, as_declared="f"))
    assert bell.rung == 2
    book.change("DELETED", node(version=4))
    assert (bell.rung, book.all()) == (3, {})


def test_labels_that_are_the_same_are_one_object() -> None:
    book, plain = NodeBook(lambda: None), node("n1")
    first = structs.replace(plain, metadata=structs.replace(plain.metadata, labels={"pool": "a"}))
    book.put(first)
    labels = book.all()["n1"].labels
    book.put(structs.replace(first, metadata=structs.replace(first.metadata, labels={"pool": "a"})))
    assert book.all()["n1"].labels is labels
    book.put(structs.replace(first, metadata=structs.replace(first.metadata, labels={"pool": "b"})))
    assert book.all()["n1"].labels == {"pool": "b"}


def test_an_older_version_never_replaces_a_newer_one() -> None:
    book = NodeBook(lambda: None)
    book.put(node(version=5, as_declared="new"))
    book.put(node(version=4, as_declared="old"))
    book.change("DELETED", node(version=4))
    found = book.get("n1")
    assert found is not None
    assert found.as_declared == "new"


def test_a_list_drops_what_is_not_in_it() -> None:
    book = NodeBook(lambda: None)
    book.put(node("gone"))
    book.begin()
    book.add(node("n1"))
    book.settle("7")
    assert set(book.all()) == {"n1"}


def test_a_record_that_cannot_be_read_is_said() -> None:
    found = see(node(upgrade="{"))
    assert found.record is None
    assert "n1" in found.problem


def test_a_mark_is_for_one_object_and_nothing_else_of_it() -> None:
    mark = Mark("n1", "uid-n1", "f00")
    others = dict.fromkeys(("grapnel.dev/failed", "grapnel.dev/looked-at"))
    assert render_mark(mark, "7") == {
        "metadata": {
            "uid": "uid-n1",
            "resourceVersion": "7",
            "annotations": {**others, "grapnel.dev/as-declared": "f00"},
        }
    }
    assert render_mark(replace(mark, word=Word.FAILED)) == {
        "metadata": {"uid": "uid-n1", "annotations": {"grapnel.dev/failed": "f00"}}
    }


def test_the_taint_of_a_node_that_joins_goes_and_those_of_others_stay() -> None:
    patch = render_mark(Mark("n1", "uid-n1", "f00"), "1", tainted().spec.taints)
    assert patch["metadata"]["resourceVersion"] == "1"
    assert patch["spec"] == {"taints": [{"key": "theirs", "effect": "NoExecute", "value": "x"}]}
    assert "spec" not in render_mark(Mark("n1", "uid-n1", "f", Word.FAILED))

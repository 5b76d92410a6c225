"""What people are shown: the tables of gpushare's user guide, of nodes and cards of every kind."""

from __future__ import annotations

import pytest

from plugin.gpushare.books import pod_annotations
from plugin.gpushare.books.book import Books
from plugin.gpushare.books.inspection import nodes_to_json, render_details, render_summary, unit_words
from plugin.gpushare.books.model import RESOURCE, Card, Holding, Node, Report
from tests.plugin.gpushare.documents import GIB, LATER_NS, make_node, make_pod, report

FIRST, SECOND = "cn-shanghai.i-uf61h64dz1tmlob9hmtb", "cn-shanghai.i-uf61h64dz1tmlob9hmtc"


def books() -> Books:
    """The cluster of gpushare's user guide."""
    made = Books()
    held = (Holding("jobs", "a", "c0", "GPU-0", 3), Holding("jobs", "b", "c0", "GPU-0", 3))
    made.put_node(make_node(FIRST, report(15, holdings=held)))
    made.put_node(make_node(SECOND, report(15)))
    for name in ("a", "b"):
        made.put_pod(make_pod(name, 3, node=FIRST))
    made.put_pod(make_pod("c", 3, node=SECOND)._replace(annotations={pod_annotations.INDEX: "0"}))
    return made


def test_the_summary_is_that_of_the_user_guide() -> None:
    assert render_summary(books()).splitlines() == [
        "NAME                                IPADDRESS     GPU0(Allocated/Total)  GPU Memory(GiB)",
        "cn-shanghai.i-uf61h64dz1tmlob9hmtb  192.168.0.71  6/15                   6/15",
        "cn-shanghai.i-uf61h64dz1tmlob9hmtc  192.168.0.71  3/15                   3/15",
        "-" * 88,
        "Allocated/Total GPU Memory In Cluster:",
        "9/30 (30%)",
    ]


def test_cards_of_unequal_memory_and_units_without_a_card_have_columns_of_their_own() -> None:
    made = books()
    made.put_node(make_node("big", report(24, 80)))
    made.put_pod(make_pod("d", 5, node="big"))
    lines = render_summary(made).splitlines()
    assert lines[0].split() == [
        "NAME",
        "IPADDRESS",
        "GPU0(Allocated/Total)",
        "GPU1(Allocated/Total)",
        "PENDING(Allocated)",
        "GPU",
        "Memory(GiB)",
    ]
    assert lines[1].split() == ["big", "192.168.0.71", "0/24", "0/80", "5", "5/104"]
    assert lines[2].split() == [FIRST, "192.168.0.71", "6/15", "0/0", "0", "6/15"]
    assert lines[-1] == "14/134 (10%)"


def test_details_name_each_pod_and_its_cards() -> None:
    made = Books()
    held = (Holding("jobs", "a", "c0", "GPU-0", 3), Holding("jobs", "a", "c1", "GPU-1", 2))
    made.put_node(make_node("n1", report(15, 8, holdings=held)))
    made.put_pod(make_pod("a", 3, 2, node="n1"))
    assert render_details(made, "n1").splitlines() == [
        "",
        "NAME:       n1",
        "IPADDRESS:  192.168.0.71",
        "",
        "NAME  NAMESPACE  GPU0(Allocated)  GPU1(Allocated)",
        "a     jobs       3                2",
        "Allocated :  5 (21%)",
        "Total :  23",
        "-" * 49,
        "",
        "Allocated/Total GPU Memory In Cluster:",
        "5/23 (21%)",
    ]


def test_a_node_whose_report_cannot_be_used_is_shown_with_the_reason() -> None:
    made = Books()
    made.put_node(make_node("n1", None, allocatable=8))
    assert "note: the node does not say which cards it offers as aliyun.com/gpu-mem" in render_details(made)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([GIB], "GiB"),
        ([1 << 20], "MiB"),
        ([256 << 20], "256 MiB each"),
        ([GIB, 1 << 20], "units"),
        ([7], "units"),
        ([], "units"),
    ],
)
def test_units_have_a_name(sizes: list[int], words: str) -> None:
    nodes = [Node(str(size), report=Report(RESOURCE, size, (Card("GPU-a", 0, 1),), LATER_NS)) for size in sizes]
    assert unit_words(nodes) == words


def test_a_cluster_without_units_has_an_empty_table() -> None:
    assert render_summary(Books()).splitlines()[-1] == "0/0 (0%)"
    assert nodes_to_json(Books()) == {"nodes": []}


def test_a_node_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        render_summary(Books(), "n9")

"""Who changed packages, by the databases of dnf 4 and of dnf 5, made after their own definitions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.traces import dnf
from ansible_collections.grapnel.node.plugins.module_utils.traces.change import PackageChange

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

DNF_4 = "/var/lib/dnf/history.sqlite"
DNF_5 = "/usr/lib/sysimage/libdnf5/transaction_history.sqlite"
TABLES_4 = """
    CREATE TABLE trans (id INTEGER PRIMARY KEY, dt_begin INTEGER NOT NULL, user_id INTEGER NOT NULL, cmdline TEXT);
    CREATE TABLE trans_item (id INTEGER PRIMARY KEY, trans_id INTEGER, item_id INTEGER, action INTEGER NOT NULL);
    CREATE TABLE rpm (item_id INTEGER, name TEXT, epoch INTEGER, version TEXT, release TEXT, arch TEXT);
    INSERT INTO trans VALUES (1, 100, 4294967295, NULL), (2, 200, 1000, 'upgrade -y');
    INSERT INTO rpm VALUES (1, 'nvidia-driver', 3, '550.163.01', '1.el9', 'x86_64'),
        (2, 'nvidia-driver', 3, '550.1', '1.el9', 'x86_64'), (3, 'bash', 0, '5', '1', 'x86_64'),
        (4, 'libnvsdm', 0, '550.1', '1.el9', 'x86_64');
    INSERT INTO trans_item VALUES (1, 1, 1, 1), (2, 1, 4, 1), (3, 2, 2, 2), (4, 2, 1, 3), (5, 2, 3, 6), (6, 2, 4, 8);
"""
ENDLESS = """
    CREATE VIEW rpm AS WITH RECURSIVE n(i) AS (SELECT 9 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS item_id, 'x' AS name, 0 AS epoch, '1' AS version, '1' AS release FROM n;
"""
FIRST_ALONE = "DELETE FROM trans_item WHERE trans_id = 2;"
TABLES_5 = """
    CREATE TABLE trans (id INTEGER PRIMARY KEY, dt_begin INTEGER, user_id INTEGER, description TEXT);
    CREATE TABLE trans_item (id INTEGER PRIMARY KEY, trans_id INTEGER, item_id INTEGER, action_id INTEGER);
    CREATE TABLE NAMES (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE rpm (item_id INTEGER, name_id INTEGER, epoch INTEGER, version TEXT, release TEXT);
    INSERT INTO trans VALUES (1, 100, 0, 'dnf install nvidia-driver'), (2, 200, 1000, 'dnf upgrade');
    INSERT INTO NAMES VALUES (1, 'nvidia-driver');
    INSERT INTO rpm VALUES (1, 1, 3, '550.1', '1.fc42'), (2, 1, 3, '550.2', '1.fc42');
    INSERT INTO trans_item VALUES (1, 1, 1, 1), (2, 2, 2, 2), (3, 2, 1, 6);
"""


@pytest.fixture
def node(machine: Machine) -> Machine:
    machine.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nnonsense\n")
    return machine


def make(node: Machine, path: str, script: str) -> None:
    with closing(sqlite3.connect(node.write(path))) as database:
        database.executescript(script)


def test_dnf_4_names_command_and_who_logged_in(node: Machine) -> None:
    make(node, DNF_4, TABLES_4)

    assert dnf.read_changes(node.host) == {
        "nvidia-driver": PackageChange("upgrade", 200, "3:550.1-1.el9", "dnf upgrade -y", "ada (1000)"),
        "libnvsdm": PackageChange("remove", 200, "", "dnf upgrade -y", "ada (1000)"),
    }


def test_what_dnf_5_did_after_dnf_4_counts(node: Machine) -> None:
    make(node, DNF_4, TABLES_4)
    make(node, DNF_5, TABLES_5.replace("NAMES", "pkg_name"))

    found = dnf.read_changes(node.host)

    assert (found["nvidia-driver"].version, found["libnvsdm"].action) == ("3:550.2-1.fc42", "remove")


def test_a_database_with_a_write_ahead_log_is_read_and_left_as_it_is(node: Machine) -> None:
    make(node, DNF_4, f"PRAGMA journal_mode = WAL; {TABLES_4}")
    folder = (node.root / DNF_4.lstrip("/")).parent

    closed = dnf.read_changes(node.host)
    assert [place.name for place in folder.iterdir()] == ["history.sqlite"]
    with closing(sqlite3.connect(folder / "history.sqlite", isolation_level=None)) as writer:
        writer.execute("UPDATE trans SET cmdline = 'downgrade'")
        opened = dnf.read_changes(node.host)

    assert (closed["nvidia-driver"].command, opened["nvidia-driver"].command) == ("dnf upgrade -y", "dnf downgrade")


@pytest.mark.parametrize("names", ["pkg_name", "pkg_names"])
def test_dnf_5_does_too(node: Machine, names: str) -> None:
    make(node, DNF_5, TABLES_5.replace("NAMES", names))

    assert dnf.read_changes(node.host) == {
        "nvidia-driver": PackageChange("upgrade", 200, "3:550.2-1.fc42", "dnf upgrade", "ada (1000)")
    }


def test_a_transaction_that_nobody_logged_in_for_has_no_user(node: Machine) -> None:
    make(node, DNF_4, f"{TABLES_4} {FIRST_ALONE}")

    assert dnf.read_changes(node.host)["nvidia-driver"] == PackageChange("install", 100, "3:550.163.01-1.el9")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("SQLite format 3\x00" + "x" * 4096, id="no database"),
    ],
)
def test_what_is_no_database_tells_nothing(node: Machine, content: str) -> None:
    node.write(DNF_4, content)
    node.write(DNF_5, content)

    assert dnf.read_changes(node.host) == {}


def test_a_database_that_never_ends_its_answer_is_given_up(node: Machine) -> None:
    tables = TABLES_4.replace("TABLE rpm", "TABLE other").replace("INTO rpm ", "INTO other ")
    make(node, DNF_4, f"{tables} {ENDLESS}")

    assert dnf.read_changes(node.host) == {}

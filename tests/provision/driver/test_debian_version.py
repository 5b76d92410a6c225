"""Versions compare as dpkg compares them (the expectations are dpkg's own answers)."""

from __future__ import annotations

import itertools

import pytest

from provision.planning.driver.versions.debian import DebianVersion

ASCENDING = [
    "0~rc1",
    "0~rc1-1",
    "0",
    "1.0~~",
    "1.0~",
    "1.0",
    "1.0-0+deb12u1",
    "1.0-1~bpo12+1",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1+deb13u1",
    "1.0-1.1",
    "1.0-10",
    "1.0a",
    "1.0+dfsg-1",
    "1.0.1",
    "535.261.03-1",
    "535.309.01-0+deb12u1",
    "550.163.01-2",
    "550.163.01-4~bpo13+1",
    "550.163.01-4",
    "1:0.1",
    "2:0",
]


@pytest.mark.slow
@pytest.mark.parametrize(("older", "newer"), list(itertools.pairwise(ASCENDING)), ids=str)
def test_the_order_is_dpkg_s(older: str, newer: str) -> None:
    assert DebianVersion(older) < DebianVersion(newer)
    assert not DebianVersion(newer) < DebianVersion(older)


@pytest.mark.parametrize(("one", "other"), [("1.0", "0:1.0"), ("1.0-0", "1.0"), ("1.02", "1.2")])
def test_versions_that_are_written_differently_may_be_equal(one: str, other: str) -> None:
    assert DebianVersion(one) == DebianVersion(other)
    assert hash(DebianVersion(one)) == hash(DebianVersion(other))


@pytest.mark.parametrize(
    ("text", "epoch", "upstream", "revision"),
    [
        ("550.163.01-2", 0, "550.163.01", "2"),
        ("1:3.13.0-2", 1, "3.13.0", "2"),
        ("20240109+1", 0, "20240109+1", ""),
        ("1.0-rc1-3", 0, "1.0-rc1", "3"),
    ],
)
def test_a_version_has_three_parts(text: str, epoch: int, upstream: str, revision: str) -> None:
    version = DebianVersion(text)

    assert (version.epoch, version.upstream, version.revision) == (epoch, upstream, revision)


def test_a_rebuilt_binary_has_the_version_of_its_source() -> None:
    assert DebianVersion("550.163.01-2+b1").source == "550.163.01-2"
    assert DebianVersion("1.7.24~ds1-6+deb13u1").source == "1.7.24~ds1-6+deb13u1"

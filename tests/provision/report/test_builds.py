"""Who builds for whom is told for each build, and fits 80 columns however many are handed the result."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from provision.apply.supply.kinds import BUILDS, DIFFERING, DRAWN, KEPT, Handing
from provision.report.console import make_console
from provision.report.planned.builds import render_builds
from provision.report.terminal import show
from tests.provision.builds.samples import KERNEL, OTHER_KERNEL, build_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def shown(builds: Sequence[Handing]) -> str:
    stream = io.StringIO()
    show(make_console(stream, width=80), render_builds(builds))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines), default=0) <= 80
    return " ".join(" ".join(lines).split())


def test_each_build_is_told_with_who_makes_it_and_who_gets_it() -> None:
    many = tuple(f"n{number}" for number in range(5, 105))

    found = shown(
        (
            Handing(build_of(builder="n1"), ("n1",), ("n2", "n3"), BUILDS),
            Handing(build_of(OTHER_KERNEL, flavour="open"), ("n4", "n104"), many, KEPT, 0),
        )
    )

    assert f"modules: n1 builds driver 550.163.01 (proprietary) for kernel {KERNEL}, handed to n2, n3" in found
    assert (
        f"modules: n4, n104 built earlier driver 550.163.01 (open) for kernel {OTHER_KERNEL}, handed to n5, n6" in found
    )
    assert "more" in found


def test_a_draw_is_told_with_what_it_costs_and_nobody_is_named_as_drawn() -> None:
    several = tuple(f"n{number}" for number in range(1, 101))

    two = shown((Handing(build_of(), several, several, DRAWN, 2),))
    one = shown((Handing(build_of(), ("n2", "n3"), ("n2", "n3"), DRAWN, 1, ("n1",)),))

    of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
    assert f"two of them, drawn by chance, build {of}; if both come to the same, the others are handed it" in two
    assert "2 builds instead of 100" in two
    assert f"one of them, drawn by chance, builds {of}; if it is what n1 built, the others are handed it" in one
    assert "1 build instead of 2" in one


def test_two_that_differ_are_named_with_what_that_costs() -> None:
    found = shown((Handing(build_of(), ("n1", "n2"), ("n3", "n4"), DIFFERING, 2),))

    assert "modules: n1, n2 have built different modules of driver 550.163.01" in found
    assert "it is handed to nobody, so n3, n4 build their own: 2 builds" in found


def test_nothing_is_shown_where_nobody_builds_for_others() -> None:
    assert shown(()) == ""

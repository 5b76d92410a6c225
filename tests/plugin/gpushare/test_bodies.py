"""Who has to go when too much is held."""

from __future__ import annotations

from plugin.gpushare.bodies import Bodies


def test_nobody_goes_while_there_is_room() -> None:
    bodies: Bodies[str] = Bodies(10)
    assert bodies.hold("a", 5) == bodies.hold("b", 5) == ()
    bodies.discard("a")
    assert bodies.hold("b", 5) == ()


def test_who_holds_most_goes_also_if_it_is_who_asks() -> None:
    bodies: Bodies[str] = Bodies(10)
    bodies.hold("large", 7)
    assert bodies.hold("small", 2) == ()
    assert bodies.hold("small", 2) == ("large",)
    assert bodies.hold("new", 9) == ("new",)
    assert bodies.hold("small", 6) == ()
    assert bodies.hold("huge", 100) == ("huge",)


def test_as_many_go_as_it_takes() -> None:
    bodies: Bodies[int] = Bodies(10)
    for number in range(5):
        bodies.hold(number, 2)
    assert bodies.hold(5, 2) == (0,)

"""What a first run says while it goes on, told with the time since it began."""

from __future__ import annotations

from bench.nodes.cold import steps


def test_what_is_done_is_told_with_the_time_since_the_beginning() -> None:
    said = [
        "[  0.0s] host packages: all there\n",
        "$ grapnel plan\n",
        "\n",
        "[ 61.4s] a second plan has nothing to do\n",
    ]
    clock = iter([100.0, 100.5, 230.0, 260.0])

    assert list(steps(said, lambda: next(clock))) == [
        "    0.5 s  host packages: all there",
        "  130.0 s  a second plan has nothing to do",
        "  160.0 s  in all",
    ]

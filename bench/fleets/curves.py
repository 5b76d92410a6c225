"""Draws what was found of fleets of several sizes: one picture for each question, small, and the same for each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from bench.fleets.figures import MAX_NOTICED_S, Size, allowed_mib, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

INCHES: Final = (6.0, 3.4)
OWN, OTHER, LIMIT = "#1a6fb4", "#b4521a", "#777777"
SETTINGS: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: a quarter of the size, and it can be searched
    "svg.hashsalt": "grapnel",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}


def draw(sizes: Sequence[Size], folder: Path, suffix: str = "svg") -> Iterator[Path]:
    """Write a picture for each question into a folder, and yield its path."""
    folder.mkdir(parents=True, exist_ok=True)
    in_order = sorted(sizes, key=lambda size: size.nodes)
    for name, question in PICTURES.items():
        path = folder / f"{name}.{suffix}"
        with rc_context(SETTINGS):
            figure = Figure(figsize=INCHES, layout="constrained")
            axes = figure.add_subplot()
            axes.set_xscale("log")
            axes.set_xticks([size.nodes for size in in_order], [f"{size.nodes:,}" for size in in_order])
            axes.minorticks_off()
            axes.set_xlabel("nodes")
            question(axes, in_order)
            figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
        yield path


def _line(axes: Axes, sizes: Sequence[Size], of: Callable[[Size], float], label: str, color: str) -> None:
    style = {"linestyle": "--"} if color == LIMIT else {"marker": "o"}
    axes.plot([size.nodes for size in sizes], list(map(of, sizes)), label=label, color=color, clip_on=False, **style)  # type: ignore[arg-type] # by name


def _memory(axes: Axes, sizes: Sequence[Size]) -> None:
    axes.set_title("Memory of the controller, MiB", loc="left")
    _line(axes, sizes, lambda size: allowed_mib(size.nodes), "limit", LIMIT)
    _line(axes, sizes, lambda size: size.memory_peak, "at most, with a roll-out of all", OTHER)
    _line(axes, sizes, lambda size: size.memory_idle, "nothing changing", OWN)
    _from_zero(axes)


def _noticed(axes: Axes, sizes: Sequence[Size]) -> None:
    axes.set_title("From a node's change to its decision, s", loc="left")
    _line(axes, sizes, lambda _size: MAX_NOTICED_S, "limit of the 99th percentile", LIMIT)
    _line(axes, sizes, lambda size: quantile(size.noticed, 0.99), "99th percentile", OTHER)
    _line(axes, sizes, lambda size: quantile(size.noticed, 0.5), "median", OWN)
    _from_zero(axes)


def _asked(axes: Axes, sizes: Sequence[Size]) -> None:
    axes.set_title("Sent by the API server while nothing changes, MB a minute", loc="left")
    _line(axes, sizes, lambda size: size.peer.megabytes, "lists Nodes and pods every two minutes", OTHER)
    _line(axes, sizes, lambda size: size.idle.megabytes, "grapnel's controller, from watches", OWN)
    _from_zero(axes)


def _requests(axes: Axes, sizes: Sequence[Size]) -> None:
    axes.set_title("Requests while nothing changes, a minute", loc="left")
    _line(axes, sizes, lambda size: size.peer.requests, "lists Nodes and pods every two minutes", OTHER)
    _line(axes, sizes, lambda size: size.idle.requests, "grapnel's controller", OWN)
    _from_zero(axes)


def _rolled(axes: Axes, sizes: Sequence[Size]) -> None:
    axes.set_title("CPU of the controller in a roll-out, ms for each node", loc="left")
    _line(axes, sizes, lambda size: size.rolled.cpu_s / size.nodes * 1000, "to its end, one of twenty fails", OWN)
    _from_zero(axes)


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.legend()


PICTURES: Final = {"memory": _memory, "noticed": _noticed, "sent": _asked, "requests": _requests, "rollout": _rolled}

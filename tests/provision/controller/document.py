"""Writes the controller's table of docs/metrics.md: `python3 -m tests.provision.controller.document`."""

from __future__ import annotations

from pathlib import Path

from provision.controller.publication.metrics import METRICS, Metric

PATH = Path(__file__).parents[3] / "docs/metrics.md"
_BEGIN, _END = "<!-- table controller -->\n", "<!-- end -->"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def with_table(text: str) -> str:
    """Return a document with the current table between its marks."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    table = "| name | kind | labels | meaning |\n|---|---|---|---|\n" + "\n".join(map(_row, METRICS))
    return f"{before}{begin}{table}\n{end}{after}"


if __name__ == "__main__":
    PATH.write_text(with_table(PATH.read_text()))

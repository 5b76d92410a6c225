"""Writes the tables of docs/metrics.md: `python3 -m tests.plugin.metrics.document`."""

from __future__ import annotations

from pathlib import Path

from plugin.publication.metrics.catalogue import ACCELERATOR_METRICS, GPU_METRICS, OWN_METRICS, Metric, Reading

PATH = Path(__file__).parents[3] / "docs/metrics.md"


def _gpu_row(row: Reading) -> str:
    words = f"; {row.conversion.words}" if row.conversion.words else ""
    return f"| `{row.metric.name}` | {row.metric.kind} | {row.nvml}{words} |"


def _own_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def tables() -> dict[str, str]:
    """Return each table by its name in the document."""
    head = "| name | kind | from NVML |\n|---|---|---|\n"
    return {
        "gpu": head + "\n".join(map(_gpu_row, GPU_METRICS)),
        "accelerator": head + "\n".join(map(_gpu_row, ACCELERATOR_METRICS)),
        "own": "| name | kind | labels | meaning |\n|---|---|---|---|\n" + "\n".join(map(_own_row, OWN_METRICS)),
    }


def with_tables(text: str) -> str:
    """Return a document with the current tables between their marks."""
    for name, table in tables().items():
        before, begin, rest = text.partition(f"<!-- table {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        text = before + begin + table + "\n" + end + after
    return text


if __name__ == "__main__":
    PATH.write_text(with_tables(PATH.read_text()))

"""Reads a page back, strictly: what Prometheus would take it for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)="(?P<value>(?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
Labels = tuple[tuple[str, str], ...]


@dataclass
class Page:
    """Samples by name and labels, in the order of the page, and what was said of each family."""

    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> dict[Labels, float]:
        """Return the samples of one name."""
        return {labels: value for (found, labels), value in self.samples.items() if found == name}

    def value(self, name: str) -> float:
        """Return the one sample of a name that has no labels."""
        return self.samples[name, ()]


def _unescape(text: str) -> str:
    return re.sub(r"\\[\\n\"]", lambda match: _ESCAPES[match.group()], text)


def _labels(text: str | None) -> Labels:
    if not text:
        return ()
    found, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match is not None, f"not a label: {text[at:]}"
        found.append((match["name"], _unescape(match["value"])))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), f"a label twice: {text}"
    return tuple(found)


def read_page(content: bytes) -> Page:
    """Read every line; anything that is not the format fails."""
    page = Page()
    text = content.decode()
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name, _, words = line[len("# HELP ") :].partition(" ")
            assert name not in page.helps, f"family twice: {name}"
            page.helps[name] = _unescape(words)
        elif line.startswith("# TYPE "):
            name, kind = line[len("# TYPE ") :].split(" ")
            page.kinds[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, f"not a sample: {line}"
            key = (match["name"], _labels(match["labels"]))
            assert key not in page.samples, f"sample twice: {key}"
            page.samples[key] = float(match["value"])
    return page

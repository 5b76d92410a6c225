"""Types are decoded by several threads at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from provision.base import decoding
from provision.base.decoding import decoder_of
from provision.declaration.fleet.facts.node import NodeFacts
from provision.declaration.spec.model import StackSpec

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "docs/contracts/node-facts/good/bare-trixie.json"
DECODES = re.compile(r"msgspec\.(convert\(|json\.Decoder\(|json\.decode\([^\n]*type=)")
AT_ONCE = """\
import sys, threading
from pathlib import Path
from provision.declaration.fleet.facts.node import parse_facts

sys.setswitchinterval(1e-6)
text, together = Path(sys.argv[1]).read_bytes(), threading.Barrier(6)

def parse():
    together.wait()
    parse_facts(text)

threads = [threading.Thread(target=parse) for _number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_threads_that_are_the_first_to_decode_a_type_do_not_end_the_process() -> None:
    """A controller of two stacks ended by SIGSEGV when both looked at their nodes for the first time."""
    for _number in range(6):
        command, environ = [sys.executable, "-P", "-c", AT_ONCE, str(FACTS)], {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environ, check=False, timeout=60)
        assert done.returncode == 0


def test_a_decoder_is_built_once() -> None:
    assert decoder_of(NodeFacts) is decoder_of(NodeFacts)
    assert decoding.convert({"driver": {"version": "550.163.01"}}, StackSpec).driver.version == "550.163.01"


def test_nothing_decodes_types_but_through_it() -> None:
    own = Path(decoding.__file__)
    sources = [path for path in (ROOT / "provision").rglob("*.py") if path != own]
    assert [str(path) for path in sources if DECODES.search(path.read_text())] == []

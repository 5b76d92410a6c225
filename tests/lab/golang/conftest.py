"""A fake go: a small shell script, first on PATH, that answers according to the files in its folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# `build` makes programs that print the answer; `calls` keeps what was asked, `gocache` what had been compiled before.
SCRIPT = """\
#!/bin/sh
here={here}
if [ "$1" = -C ]; then cd $2; shift 2; fi
echo "$@" >> $here/calls
fail() {{ [ -e $here/fail-$1 ] && {{ cat $here/fail-$1 >&2; exit 1; }}; }}
fail $1
case $1 in
env) cat $here/env ;;
mod)
    case $2 in
    download) cat $here/download ;;
    tidy) echo hashes > go.sum ;;
    esac ;;
list) echo 'go: downloading example.invalid/module v1.0.0' >&2; printf 'a\\nb\\nc\\n' ;;
build)
    mkdir -p $GOCACHE
    found=$(ls -A $GOCACHE)
    touch $GOCACHE/compiled $GOTMPDIR/temporary
    echo "$found" > $here/gocache
    while [ "$1" != -o ]; do shift; done
    echo b >&2
    for name in containerd containerd-shim-runc-v2 ctr; do
        printf '#!/bin/sh\\ncat %s/answer\\n' $here > $2/$name
        chmod 755 $2/$name
    done
    echo c >&2
    while [ -e $here/hang ]; do sleep 0.05; done
esac
"""


@dataclass(frozen=True)
class FakeGo:
    """The folder of the fake go."""

    folder: Path

    def answers(self, version: str = "go1.26.8", architecture: str = "amd64") -> None:
        (self.folder / "env").write_text(f"{version}\n{architecture}\n")

    def fails(self, verb: str, text: str) -> None:
        (self.folder / f"fail-{verb}").write_text(text)

    def publishes(self, go_mod: Path, text: str) -> None:
        go_mod.write_text(text)
        (self.folder / "download").write_text(json.dumps({"GoMod": str(go_mod)}))

    def calls(self, verb: str) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(f"{verb} ")]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; builds go to its folder `grapnel/golang`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GOCACHE", raising=False)
    return tmp_path / "cache" / "grapnel" / "golang"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """A go on PATH that builds everything at once."""
    folder = tmp_path / "go"
    folder.mkdir()
    (folder / "go").write_text(SCRIPT.format(here=folder))
    (folder / "go").chmod(0o755)
    (folder / "answer").write_text("containerd example v2.2.1\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    fake = FakeGo(folder)
    fake.answers()
    return fake

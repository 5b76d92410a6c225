"""What real shells offer for the beginning of a command line, asked as a press of Tab asks them."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# bash calls the registered function with the words in COMP_WORDS, and reads COMPREPLY.
_BASH = r"""
source "$SCRIPT"
read -ra COMP_WORDS <<<"$LINE"
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$LINE COMP_POINT=${#LINE}
spec=$(complete -p grapnel) && ask=${spec##*-F } && ask=${ask%% *}
"$ask" grapnel "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""
# zsh completes in its line editor only: at the first prompt the line is put there, and what compadd is given is noted.
_ZSH = r"""
fpath=(${SCRIPT:h} $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
  if [[ " ${@[1,(i)(-|--)]} " != *' -'[OAD]' '* ]]; then
    local -a found
    builtin compadd -O found "$@"
    print -rl -- $found >>$ANSWER
  fi
  builtin compadd "$@"
}
ask() { BUFFER=$LINE CURSOR=$#LINE; zle complete-word; exit }
zle -N zle-line-init ask
"""


def candidates(shell: str, script: str, line: str, folder: Path) -> set[str]:
    """Return what a shell offers with the script loaded as people load it."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt-get install {shell})")
    answer, path = folder / "answer", folder / ("_grapnel" if shell == "zsh" else f"grapnel.{shell}")
    answer.touch()
    path.write_text(script)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ZDOTDIR": str(folder),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "LINE": line,
        "SCRIPT": str(path),
        "ANSWER": str(answer),
    }
    if shell == "zsh":
        (folder / ".zshrc").write_text(_ZSH)
        in_terminal(("zsh", "-d", "-i"), environment)
        told = answer.read_text()
    else:
        fish = 'source "$SCRIPT"; complete -C "$LINE"'
        command = ("bash", "--norc", "-c", _BASH) if shell == "bash" else ("fish", "--private", "--command", fish)
        told = subprocess.run(
            command, env=environment, cwd=folder, check=True, capture_output=True, text=True, timeout=60
        ).stdout
    return {each.split("\t")[0].strip() for each in told.splitlines()} - {""}


def in_terminal(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Run a command in a pseudo-terminal of its own, and return all that it wrote there."""
    master, slave = pty.openpty()
    heard: list[bytes] = []
    reader = threading.Thread(target=_read, args=(master, heard))
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=environment["HOME"],
        start_new_session=True,
    )
    os.close(slave)
    reader.start()
    process.wait(timeout=60)
    reader.join(timeout=60)
    os.close(master)
    return b"".join(heard).decode(errors="replace")


def _read(master: int, heard: list[bytes]) -> None:
    try:
        while block := os.read(master, 65536):
            heard.append(block)
    except OSError:  # EIO: nobody has the other end any more
        return

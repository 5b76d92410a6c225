"""Recognizes what often ails a machine in what Ansible says of it, and says where it is and what helps. Pure.

Ansible passes on what ssh, sudo and Python print: a box of ``@``, half a page about temporary directories, a traceback.
What is not recognized is shown as it is (``translate``). These are words and nothing else: a node that imitates one of
them has failed all the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATH: Final = r"/[^'\x00-\x1f\x7f-\x9f\u2028\u2029]*"  # of one line, as Python quotes it
_AT: Final = rf"(?:: b?'(?P<place>{_PATH})')?"
_BEFORE: Final = rf"(?:'(?P<before>{_PATH})': )?"
_LINE: Final = 200  # what fits says by itself what is wrong and where, as grapnel's own modules do
_PYTHONS: Final = "[Errno "  # unless it passes on an error of Python's
# ssh has closed its input and not ended yet: Ansible gives up a millisecond later, and leaves unread what ssh says.
_UNREAD: Final = "ssh ended before it was told what to run, and what it said was not read: `ssh` to it says why"
_INSTALL: Final = (
    "install a later one beside it, which Ansible finds by itself: `dnf install python3.11` on RHEL 8 and its kin, "
    "`zypper install python311` on SLES 15 SP4 or later"
)
_IMAGES: Final = "Talos, Flatcar and Bottlerocket have none to install: leave them out of the inventory"
_OF_CONNECTIONS: Final = (
    (
        r"remote host identification has changed.*?offending \S+ key in (?P<place>/\S+)",
        "its host key is not the one in {place}: remove that line if the machine was installed again, else beware",
    ),
    (
        r"host key verification failed",
        "its host key is not known here: compare it with the machine's own and add it to known_hosts",
    ),
    (
        r"incorrect (?P<how>\w+) password|duplicate become password prompt",
        "the password for {how} is wrong: check ansible_become_password of this node and its groups",
    ),
    (
        r"missing (?P<how>\w+) password|a password is required",
        "{how} asks for a password, and none is given: set ansible_become_password, or a rule that needs none",
    ),
    (
        r"data could not be sent to remote host \S+ make sure this host can be reached over ssh(?:\.|: \[errno )",
        _UNREAD,
    ),
)
# Of a module that Ansible starts with Python 3.6, and of one for which it finds no Python.
_OF_PYTHON: Final = (
    (
        r"future feature annotations is not defined|ansible-core requires a minimum of python",
        f"its Python is too old for Ansible, which needs 3.8: {_INSTALL}",
    ),
    (
        r"the module interpreter '[^'\n]{1,200}' was not found",
        f"it has no Python where Ansible looks for one: {_INSTALL}; {_IMAGES}",
    ),
)
_OF_DISKS: Final = (
    (
        rf"{_BEFORE}read-only file system{_AT}",
        "its file system is read-only{at}: `dmesg` on the machine says why; make it writable, then apply again",
    ),
    (
        rf"{_BEFORE}no space left on device{_AT}",
        "its disk is full{at}: `df -h` and `df -i` on the machine show where; make room, then apply again",
    ),
)


def recognize(texts: Sequence[str]) -> str:
    """Return what is wrong, where, and what helps; empty for what is not known, or is said in the first text's line.

    ``texts`` is what was said of one failure, what is shown otherwise first.
    """
    whole = "\n".join(texts)
    known = _find((*_OF_CONNECTIONS, *_OF_PYTHON), whole)
    return known or ("" if _is_told(texts[:1]) else _find(_OF_DISKS, whole))


def _is_told(texts: Sequence[str]) -> bool:
    lines = (text for text in texts if len(text) <= _LINE and "\n" not in text.strip() and _PYTHONS not in text)
    return any(_find(_OF_DISKS, line) for line in lines)


def _find(ailments: Sequence[tuple[str, str]], text: str) -> str:
    for pattern, words in ailments:
        if found := re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            named = {name: value or "" for name, value in found.groupdict().items()}
            place = named.get("place") or named.get("before") or ""
            return words.format(place=place, at=f" ({place})" if place else "", how=named.get("how") or "sudo")
    return ""

"""What can go wrong where a gate is asked.

Exception
└── UnansweredError     the gate counts as closed, and the text is the reason that people see
"""

from __future__ import annotations


class UnansweredError(Exception):
    """There is no answer that says whether a gate is open; the text says why, without anything that is secret."""

"""Errors of the set-up: ``SetupError`` is the only one, its text is the one line that a person sees."""

from __future__ import annotations


class SetupError(Exception):
    """The set-up cannot go on: says in one line what is missing and what helps."""

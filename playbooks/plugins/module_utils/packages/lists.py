"""Defines when a package manager's lists of what it could install count as old."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Freshness:
    """When lists count as old, and how long a refresh may take, the wait for the manager's lock included."""

    max_age_s: float
    timeout_s: float

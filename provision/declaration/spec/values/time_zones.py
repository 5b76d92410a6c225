"""Finds time zones by their names, in the database of this machine.

That of the operating system: rules of time change, and it is what `date` on the same machine goes by.
"""

from __future__ import annotations

import zoneinfo
from datetime import date, datetime, timedelta


def find_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the time zone of a name; None where this machine knows none."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as Europe
        return None


def zone_names() -> list[str]:
    """Return all names that this machine knows; none where it has no database."""
    return sorted(zoneinfo.available_timezones())


def moment_of(text: str, zone: zoneinfo.ZoneInfo, *, is_last: bool) -> datetime | None:
    """Return the moment of a day or a minute of it; None for a day that no calendar has.

    A day stands for its beginning, as the last one for its end.
    """
    try:
        if "T" in text:
            return datetime.fromisoformat(text).replace(tzinfo=zone)
        day = date.fromisoformat(text) + timedelta(days=1 if is_last else 0)
    except ValueError:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=zone)

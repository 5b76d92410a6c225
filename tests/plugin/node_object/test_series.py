from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugin.publication.node_object.api.budget import Backoff, Bucket
from plugin.publication.node_object.model import Note
from plugin.publication.node_object.series import LIFE_S, PACE_S, EventBook, Series


def note(subject: str = "gpu-0", message: str = "m") -> Note:
    return Note(is_warning=True, reason="GPUXidError", message=message, subject=subject)


def due(book: EventBook, now_s: float) -> Series:
    found = book.due(now_s)
    assert found is not None
    return found


def test_the_first_of_a_series_is_due_at_once_and_the_rest_is_counted() -> None:
    book = EventBook()
    book.note(note(), "1", 0)
    book.told(due(book, 0), "n1.a", 0)
    for second in range(1, 6):
        book.note(note(message=f"at {second}"), str(second), second)
    assert book.due(5) is None
    assert book.due_s() == PACE_S
    series = due(book, PACE_S)
    assert (series.name, series.count, series.first, series.last) == ("n1.a", 6, "1", "5")
    assert series.note.message == "at 5"
    book.told(series, "n1.a", PACE_S)
    assert book.due_s() is None


def test_what_happens_while_it_is_sent_is_not_lost() -> None:
    book = EventBook()
    book.note(note(), "1", 0)
    sent = due(book, 0)
    book.note(note(), "2", 0)
    book.told(sent, "n1.a", 0)
    assert due(book, PACE_S).count == 2


def test_an_event_that_the_api_forgot_is_recreated_with_the_whole_count() -> None:
    book = EventBook()
    book.note(note(), "1", 0)
    book.told(due(book, 0), "n1.a", 0)
    book.note(note(), "2", 1)
    book.forgotten(due(book, PACE_S))
    series = due(book, PACE_S)
    assert (series.name, series.count, series.told) == ("", 2, 0)


def test_after_an_hour_without_it_a_series_starts_over() -> None:
    book = EventBook()
    book.note(note(), "1", 0)
    book.told(due(book, 0), "n1.a", 0)
    book.note(note(), "2", LIFE_S + 1)
    series = due(book, LIFE_S + 1)
    assert (series.name, series.count, series.first) == ("", 1, "2")


def test_what_was_given_up_while_it_was_sent_stays_away() -> None:
    book = EventBook(limit=1)
    book.note(note("a"), "1", 0)
    sent = due(book, 0)
    book.note(note("b"), "2", 0)
    book.told(sent, "n1.a", 0)
    book.forgotten(sent)
    assert [series.note.subject for series in book] == ["b"]
    assert book.dropped == 1


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200))
def test_notes_are_told_waiting_or_counted_as_dropped(steps: list[tuple[int, bool]]) -> None:
    book, told = EventBook(limit=4), {}
    noted = 0
    for now_s, (subject, is_sent) in enumerate(steps):
        book.note(note(str(subject)), str(now_s), now_s)
        noted += 1
        series = book.due(now_s) if is_sent else None
        if series is not None:
            told[series.note.subject, series.first] = series.count
            book.told(series, series.name or f"e{now_s}", now_s)
        assert len(list(book)) <= 4
    waiting = sum(series.count - series.told for series in book)
    assert sum(told.values()) + waiting + book.dropped == noted


@given(st.lists(st.floats(0, 100), max_size=100))
def test_a_bucket_gives_no_more_than_its_burst_and_its_pace(gaps: list[float]) -> None:
    bucket, now_s, taken = Bucket(burst=3, refill_s=10), 0.0, []
    for gap in gaps:
        now_s += gap
        if bucket.ready_s(now_s) <= now_s:
            bucket.take(now_s)
            taken.append(now_s)
    for index, first in enumerate(taken):
        for number, later in enumerate(taken[index:]):
            assert number + 1 <= 3 + (later - first) / 10 + 1e-6


def test_an_untouched_bucket_is_full_and_an_empty_one_fills() -> None:
    bucket = Bucket(burst=2, refill_s=10)
    bucket.take(100)
    bucket.take(100)
    assert bucket.ready_s(100) == 110
    assert bucket.ready_s(111) == 111


@given(st.integers(1, 40), st.floats(0, 0.999), st.floats(0, 3600))
def test_waiting_grows_has_an_end_and_is_never_less_than_asked(failures: int, chance: float, asked_s: float) -> None:
    backoff = Backoff(lambda: chance)
    for _ in range(failures - 1):
        backoff.failed(0)
    backoff.failed(1000, asked_s)
    wait_s = backoff.until_s - 1000
    assert max(asked_s, min(2 ** (failures - 1), 300) / 2) <= wait_s + 1e-6
    assert wait_s <= max(450, asked_s * 1.5) + 1e-6
    backoff.succeeded()
    assert backoff.until_s < 0

from __future__ import annotations

from plugin.sharing.mps.pace import Pace, Retries

PACE = Pace(first_retry_s=1, longest_retry_s=5, steady_s=60)


def test_pauses_grow_up_to_the_longest() -> None:
    retries, now_s, pauses = Retries(PACE), 100.0, []
    for _ in range(5):
        retries.started(now_s)
        pauses.append(retries.left_s(now_s))
        now_s += pauses[-1]
        assert not retries.left_s(now_s)
    assert pauses == [1, 2, 4, 5, 5]


def test_what_has_run_for_long_is_started_at_once() -> None:
    retries = Retries(PACE)
    for _ in range(5):
        retries.started(0)
    retries.ran_for(59)
    assert retries.left_s(0) == 5
    retries.ran_for(60)
    assert retries.left_s(0) == 0
    retries.started(0)
    assert retries.left_s(0) == 1

"""How long a worker that has ended is waited with."""

from server.cluster.workers.worker_supervisor import LONGEST_SECONDS, STEADY_SECONDS, Pauses


def test_what_dies_soon_again_and_again_waits_twice_as_long_each_time_up_to_a_minute() -> None:
    pauses = Pauses()
    assert [pauses.after(0.5) for _ in range(8)] == [1, 2, 4, 8, 16, 32, LONGEST_SECONDS, LONGEST_SECONDS]


def test_what_has_lived_is_started_again_at_once_and_its_early_deaths_are_forgotten() -> None:
    pauses = Pauses()
    pauses.after(1)
    pauses.after(1)
    assert pauses.after(STEADY_SECONDS) == 0
    assert pauses.after(1) == 1

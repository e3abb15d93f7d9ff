"""Test that deadlines expire like those of a plain dictionary, and that their memory is bounded."""

from hypothesis import example, given
from hypothesis import strategies as st

from oncelog.coordinator.groups.deadlines import Deadlines

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 100)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(STEPS)
@example([("set", 0, 1), ("set", 1, 1), ("set", 0, 2), ("pass", 0, 2)])
def test_deadline_set_several_times_is_due_once_at_the_last_time_set(steps) -> None:
    deadlines, model, now_ms = Deadlines[int](), dict[int, int](), 0
    for what, key, number in steps:
        if what == "set":
            deadlines.set(key, now_ms + number)
            model[key] = now_ms + number
        elif what == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            now_ms += number
            due = list(deadlines.pop_due(now_ms))
            assert sorted(due) == sorted(k for k, at_ms in model.items() if at_ms <= now_ms)
            assert [model[k] for k in due] == sorted(model[k] for k in due)
            model = {k: at_ms for k, at_ms in model.items() if at_ms > now_ms}
        assert len(deadlines) == len(model)
        if model:
            assert deadlines.next_ms is not None
            assert deadlines.next_ms <= min(model.values())


def test_deadlines_changed_many_times_use_bounded_memory() -> None:
    deadlines = Deadlines[object]()
    for now_ms in range(20_000):
        deadlines.set("member", now_ms + 10)
        deadlines.set(now_ms, now_ms + 1_000_000)
        deadlines.cancel(now_ms)
        deadlines.set("falls", 1_000_000 - now_ms)
    assert len(deadlines._heap) < 200

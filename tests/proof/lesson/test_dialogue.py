"""Test how `oncelog lesson` handles what its reader types."""

import queue
from collections.abc import Iterable

import pytest

from oncelog.proof.lesson.dialogue import Dialogue, Quit, Repeat, Skip

from ...waiting import until


def dialogue(lines: Iterable[str]) -> Dialogue:
    """Return a dialogue with a reader that types these lines and then closes the input."""
    typed = iter(lines)
    return Dialogue(lambda: next(typed, ""))


def never() -> bool:
    return False


def test_lesson_does_a_step_at_each_enter_or_d_until_the_step_has_happened() -> None:
    done: list[int] = []
    dialogue(["\n", "what?\n", "d\n"]).until(lambda: len(done) == 2, lambda: done.append(1))
    assert done == [1, 1]


def test_lesson_wait_ends_without_a_key_when_the_event_happens() -> None:
    looks = iter([False, False, True])
    dialogue(["hm\n"] * 5).until(lambda: next(looks), pytest.fail)


@pytest.mark.parametrize(("line", "raised"), [("r\n", Repeat), (" S \n", Skip), ("q\n", Quit)])
def test_lesson_wait_ends_at_repeat_skip_or_quit(line: str, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        dialogue([line]).until(never, pytest.fail)


def test_lesson_ends_at_the_end_of_its_input() -> None:
    with pytest.raises(Quit):
        dialogue([]).until(never, pytest.fail)


@pytest.mark.parametrize("line", ["\n", "s\n"])
def test_lesson_continues_at_enter_or_skip(line: str) -> None:
    dialogue([line]).next()


def test_lesson_ignores_lines_typed_before_a_question_except_the_end_of_input() -> None:
    typed: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = Dialogue(typed.get)
    for line in ("\n", "s\n"):
        typed.put(line)
    until(lambda: typed.empty())
    until(lambda: reader.waiting == 2)
    reader.forget()
    assert reader.look() is None
    typed.put("")
    until(lambda: reader.waiting == 1)
    reader.forget()
    with pytest.raises(Quit):
        reader.look()

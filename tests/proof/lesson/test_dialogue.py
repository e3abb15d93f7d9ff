"""The input of a lesson's reader."""

import queue
from collections.abc import Iterable

import pytest

from oncelog.proof.lesson.dialogue import Dialogue, Quit, Repeat, Skip

from ...waiting import until


def dialogue(lines: Iterable[str]) -> Dialogue:
    """Return the dialogue with a reader that types these lines, and then ends the input."""
    typed = iter(lines)
    return Dialogue(lambda: next(typed, ""))


def never() -> bool:
    return False


def test_enter_does_it_until_it_has_happened() -> None:
    done: list[int] = []
    dialogue(["\n", "what?\n", "d\n"]).until(lambda: len(done) == 2, lambda: done.append(1))
    assert done == [1, 1]


def test_wait_ends_without_a_key_when_it_happens_elsewhere() -> None:
    looks = iter([False, False, True])
    dialogue(["hm\n"] * 5).until(lambda: next(looks), pytest.fail)


@pytest.mark.parametrize(("line", "raised"), [("r\n", Repeat), (" S \n", Skip), ("q\n", Quit)])
def test_key_ends_the_wait(line: str, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        dialogue([line]).until(never, pytest.fail)


def test_end_of_the_input_quits() -> None:
    with pytest.raises(Quit):
        dialogue([]).until(never, pytest.fail)


@pytest.mark.parametrize("line", ["\n", "s\n"])
def test_reader_goes_on_by_enter_or_skip(line: str) -> None:
    dialogue([line]).next()


def test_lines_typed_before_a_question_are_dropped_except_quit() -> None:
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

"""Test a pending answer that gets its body from another pending answer (`follow`)."""

from oncelog.node.listener.pending_answer import PendingAnswer


def test_following_answer_completes_with_the_followed_answer() -> None:
    outer, inner = PendingAnswer(), PendingAnswer()
    outer.follow(inner)
    inner.complete([b"body"])
    assert outer.buffers == [b"body"]


def test_following_answer_of_a_complete_answer_is_complete_immediately() -> None:
    outer, inner = PendingAnswer(), PendingAnswer()
    inner.abort("gone", [b"last"])
    outer.follow(inner)
    assert (outer.close_reason, outer.buffers) == ("gone", [b"last"])


def test_following_answer_abandoned_while_it_waits_abandons_the_followed_answer() -> None:
    abandoned: list[str] = []
    outer, inner = PendingAnswer(), PendingAnswer(lambda: abandoned.append("inner"))
    outer.follow(inner)
    outer.abandon()
    assert abandoned == ["inner"] and inner.is_abandoned


def test_following_answer_abandoned_before_it_follows_abandons_the_followed_answer() -> None:
    outer, inner = PendingAnswer(), PendingAnswer()
    outer.abandon()
    outer.follow(inner)
    assert inner.is_abandoned


def test_following_answer_is_finished_once_when_the_followed_answer_completes() -> None:
    """`finish` records the time of the request, even if the client has disconnected."""
    for is_abandoned in (False, True):
        outer, inner, changes = PendingAnswer(), PendingAnswer(), list[object]()
        outer.finish = lambda body, changes=changes: [*body, str(changes.append(1)).encode()]
        outer.follow(inner)
        if is_abandoned:
            outer.abandon()
        inner.complete([b"body"])
        assert changes == [1]
        assert outer.buffers == (None if is_abandoned else [b"body", b"None"])

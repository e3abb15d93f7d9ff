"""Test the blocks of producer ids that a broker fetches from the controller."""

from oncelog.coordinator.controller.producer_ids import BLOCKS_MAX, PREFETCH_BELOW, ProducerIdBlock


def test_producer_ids_of_a_block_are_used_in_order_and_once() -> None:
    ids = ProducerIdBlock()
    assert ids.take() is None and ids.wants_more
    ids.add(1000, 3)
    ids.add(5000, 2)
    assert [ids.take() for _ in range(6)] == [1000, 1001, 1002, 5000, 5001, None]


def test_producer_id_block_nearly_used_up_requests_another() -> None:
    ids = ProducerIdBlock()
    ids.add(0, PREFETCH_BELOW + 1)
    assert not ids.wants_more
    ids.take()
    assert not ids.wants_more and ids.remaining == PREFETCH_BELOW
    ids.take()
    assert ids.wants_more


def test_kept_producer_id_blocks_are_bounded_and_empty_blocks_are_ignored() -> None:
    ids = ProducerIdBlock()
    ids.add(7, 0)
    assert ids.remaining == 0
    for block in range(BLOCKS_MAX + 3):
        ids.add(block * 1000, 1000)
    assert ids.remaining == BLOCKS_MAX * 1000

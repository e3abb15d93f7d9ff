"""Add a record to an accumulator, as a producer does."""

from oncelog.client.produce.accumulator import Accumulator
from oncelog.client.produce.delivery import Delivery
from oncelog.wire.batch_builder import RECORD_BYTES_EXTRA


def put(
    batches: Accumulator, value: bytes, *, partition: int = 0, timestamp: int = 1, now_ms: int = 0
) -> Delivery:
    """Add one record without a key to a partition of topic t, and return its delivery."""
    record = (("t", partition), None, value, (), timestamp, len(value) + RECORD_BYTES_EXTRA)
    delivery = batches.add(*record)
    if delivery is None:
        batches.begin(("t", partition), now_ms)
        delivery = batches.add(*record)
    assert delivery is not None
    return delivery

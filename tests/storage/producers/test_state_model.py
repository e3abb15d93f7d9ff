"""Test the producer state against a model that searches a list of all written batches."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.runtime.steps import run_to_end
from oncelog.storage.producers.snapshot import decode, encode
from oncelog.storage.producers.state import Duplicate, ProducerStateTable
from oncelog.wire.errors import InvalidProducerEpoch, KafkaError, UnknownProducerId
from oncelog.wire.record_batch import BatchHeader

WRAP = 2**31
NOW = 5


class Model:
    """A list of all batches and markers, which is searched for each answer."""

    def __init__(self):
        self.batches = []  # (producer, epoch, sequence, count, offset, transactional)
        self.markers = []  # (producer, epoch, offset, is_abort)
        self.end = 0

    def epoch(self, producer):
        known = [(b[4], b[1]) for b in self.batches if b[0] == producer]
        known += [(m[2], m[1]) for m in self.markers if m[0] == producer]
        return max(known)[1] if known else -1

    def window(self, producer):
        """Return the last five batches of a producer in its current epoch."""
        events = [(b[4], b[1], b) for b in self.batches if b[0] == producer]
        events += [(m[2], m[1], None) for m in self.markers if m[0] == producer]
        window, epoch = [], -1
        for _, at_epoch, written in sorted(events, key=lambda event: event[0]):
            if at_epoch != epoch:
                window, epoch = [], at_epoch
            if written:
                window = [*window, written][-5:]
        return window

    def first_open(self, producer):
        last_marker = max((m[2] for m in self.markers if m[0] == producer), default=-1)
        offsets = [b[4] for b in self.batches if b[0] == producer and b[5] and b[4] > last_marker]
        return min(offsets, default=None)

    def is_aborted(self, written):
        producer, _, _, _, offset, transactional = written
        ends = [m for m in self.markers if m[0] == producer and m[2] > offset]
        return transactional and bool(ends) and ends[0][3]

    def last_stable_offset(self, high_watermark):
        unstable = [high_watermark]
        for producer, _, _, _, offset, transactional in self.batches:
            if transactional:
                ends = [m[2] for m in self.markers if m[0] == producer and m[2] > offset]
                if not ends or min(ends) >= high_watermark:
                    unstable.append(offset)
        return min(unstable)

    @staticmethod
    def following(window):
        return (window[-1][2] + window[-1][3]) % WRAP

    def judge(self, producer, epoch, sequence, count, transactional):
        """Return the expected answer to a batch with a valid verification guard.

        The answer is the offset of a duplicate, or "fenced", "aborted" (the sequence is that of an
        aborted batch), "refused" or "accepted".
        """
        window = self.window(producer)
        known = self.epoch(producer)
        if epoch == known:
            for written in window:
                if written[2:4] == (sequence, count) and not self.is_aborted(written):
                    return written[4]
            for written in window:
                is_used = (sequence - written[2]) % WRAP < written[3]
                if is_used and self.is_aborted(written) and sequence != self.following(window):
                    return "aborted"
        if epoch < known:
            return "fenced"
        if known != -1:
            expected = 0
            if epoch == known and window:
                expected = self.following(window)
            if sequence != expected:
                return "refused"
        if not transactional and self.first_open(producer) is not None:
            return "refused"
        return "accepted"


small = st.integers(0, 2)
sequences = st.one_of(st.integers(0, 12), st.integers(WRAP - 4, WRAP - 1))
steps = st.one_of(
    st.tuples(st.just("batch"), small, small, sequences, st.integers(1, 4), st.booleans()),
    st.tuples(st.just("next"), small, st.integers(1, 4), st.booleans()),
    st.tuples(st.just("repeat"), st.integers(1, 7)),
    st.tuples(st.just("marker"), small, st.one_of(st.none(), small), st.booleans()),
    st.tuples(st.just("reload")),
)


def header(producer, epoch, sequence, count, transactional):
    attributes = 0x10 if transactional else 0
    return BatchHeader(
        -1, 100, 0, 2, 0, attributes, count - 1, NOW, NOW, producer, epoch, sequence, count
    )


@given(st.lists(steps, max_size=40), st.integers(0, 60))
def test_producer_state_after_random_histories_equals_a_naive_model(history, high_watermark):
    model, table = Model(), ProducerStateTable()
    written, aborted = [], []
    for step in history:
        if step[0] == "reload":
            entries = decode(encode(table.snapshot_entries()))
            run_to_end(table.loading_entries(entries, table.end_offset, NOW))
            run_to_end(table.refilling_windows(written))
            for transaction in aborted:
                table.mark_aborted(*transaction)
            continue
        if step[0] == "marker":
            _, producer, epoch, is_abort = step
            epoch = max(model.epoch(producer), 0) if epoch is None else epoch
            if epoch >= model.epoch(producer):
                completed = table.append_marker(
                    producer,
                    epoch,
                    0,
                    is_aborted=is_abort,
                    offset=model.end,
                    timestamp=NOW,
                    now_ms=NOW,
                )
                first_open = model.first_open(producer)
                assert (completed and completed.first_offset) == first_open
                if completed:
                    table.complete_transaction(completed)
                    if is_abort:
                        aborted.append((producer, completed.first_offset, model.end))
                model.markers.append((producer, epoch, model.end, is_abort))
                model.end += 1
            continue
        if step[0] == "batch":
            arguments = step[1:]
        elif step[0] == "next":
            _, producer, count, transactional = step
            window, epoch = model.window(producer), max(model.epoch(producer), 0)
            sequence = (window[-1][2] + window[-1][3]) % WRAP if window else 0
            arguments = (producer, epoch, sequence, count, transactional)
        elif step[1] <= len(model.batches):
            producer, epoch, sequence, count, _, transactional = model.batches[-step[1]]
            arguments = (producer, epoch, sequence, count, transactional)
        else:
            continue
        batch = header(*arguments)
        guard = None
        if batch.is_transactional:
            guard = table.begin_verification(*arguments[:3], now_ms=NOW)
        try:
            verdict = table.check(batch, guard=guard)
            answer = verdict.base_offset if isinstance(verdict, Duplicate) else "accepted"
        except InvalidProducerEpoch:
            answer = "fenced"
        except UnknownProducerId:
            answer = "aborted"
        except KafkaError:
            answer = "refused"
        if guard is not None:  # the model has no guards: none may outlive its request
            table._guards.clear()
        assert answer == model.judge(*arguments)
        if answer == "accepted":
            table.append(batch, model.end, NOW)
            written.append((model.end, batch))
            model.batches.append((*arguments[:4], model.end, arguments[4]))
            model.end += arguments[3]
    limit = min(high_watermark, model.end)
    if not any(step[0] == "reload" for step in history):
        assert table.last_stable_offset(limit) == model.last_stable_offset(limit)
    assert table.last_stable_offset(model.end) == model.last_stable_offset(model.end)
    assert table.end_offset == model.end

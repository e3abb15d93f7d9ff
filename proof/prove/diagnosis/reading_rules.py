"""How input is read."""

from .rule import FindingRule, Tell
from .seen import SeenOffsetCommit, SeenProduce, SeenRecords, SeenTxnOffsetCommit, Sighting


class ReadUncommitted(FindingRule):
    """Batches of transactions come to a consumer that reads uncommitted, of an instance that makes
    something of them: writes, or commits offsets. Input without transactions gives none."""

    def __init__(self) -> None:
        self._dirty = dict[tuple[str, str], SeenRecords]()  # instance, topic
        self._workers = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenRecords):
            topic = seen.partition[0]
            if seen.is_transactional and not seen.is_read_committed and not topic.startswith("__"):
                self._dirty.setdefault((seen.instance, topic), seen)
        elif isinstance(seen, (SeenProduce, SeenOffsetCommit, SeenTxnOffsetCommit)):
            self._workers.add(seen.instance)
        else:
            return
        if seen.instance in self._workers:
            for (instance, topic), read in self._dirty.items():
                if instance == seen.instance:
                    text = (
                        f"Fetch of {topic} with isolation level 0, and batches of transactions in "
                        f"its answer ({topic}/{read.partition[1]})"
                    )
                    tell("read-uncommitted", read, topic, text)

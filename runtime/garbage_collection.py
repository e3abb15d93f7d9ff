"""The garbage collector within the budget of the event loop.

A full collection visits every object. It takes 50 ms with 100,000 small entries and half a second
with a million committed offsets, at an arbitrary time. Therefore young objects are collected in
portions of a few milliseconds, and full collections never start automatically. Objects that are
dropped without a reference cycle need no collector. tests/runtime/test_garbage_collection.py shows
that no long-lived object (connection, group, topic, partition, log) ends in a cycle.
"""

import gc
import time

YOUNG_OBJECTS = 5_000  # objects allocated since the last collection
YOUNG_COLLECTIONS = 10  # collections before the survivors are visited again: 50,000 objects, 5 ms
NEVER = 1 << 30


class GarbageCollection:
    """The garbage collector's settings for short pauses, and the measurement of the pauses."""

    def __init__(self) -> None:
        self.paused_s = 0.0  # the total CPU time
        self.is_running = False
        self._longest_s = 0.0
        self._began_s = 0.0

    def start(self) -> None:
        """Exclude the current objects from all collections, and keep later collections short."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def metrics(self) -> dict[str, float]:
        """Return the total and the longest time of collections as metrics, in milliseconds."""
        return {
            "gc_ms": round(self.paused_s * 1000),
            "gc_longest_ms": round(self._longest_s * 1000, 1),
        }

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self.is_running, self._began_s = True, time.thread_time()
            return
        self.is_running = False
        paused_s = time.thread_time() - self._began_s
        self.paused_s += paused_s
        self._longest_s = max(self._longest_s, paused_s)

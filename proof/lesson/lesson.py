"""Five steps on a cluster of three nodes, each with the effect of a fault, and its reason.

In steps 1 (at most once), 2 (at least once) and 3 (exactly once) the reader kills an application
that writes an invoice for each order, and the lesson counts. Step 4 is a fenced zombie, and step 5
a transaction that is left open. The reader injects each fault, in another terminal or with Enter.
The lesson verifies the fault, and names the place to look at.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...client.admin import LATEST
from ...client.blocking import BlockingAdmin, BlockingConsumer
from ...client.blocking_producer import BlockingProducer
from ...deploy.cluster.advice import shell_command
from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...wire.errors import KafkaError
from .application import (
    AT_A_TIME,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    LEAVES_OPEN,
    SESSION_MS,
)
from .dialogue import KEYS, Dialogue, Quit, Repeat, Skip
from .processes import LessonProcesses

CLUSTER_CONFIG = {"group.min.session.timeout.ms": str(SESSION_MS), "num.partitions": "1"}
SLOW_S, FAST_S, SETTLED_S = 0.2, 0.01, 60.0
AHEAD, LOOK_S = 25, 0.1  # the number of orders kept ready, and how often that is checked
NOT_FOR_LONG = {"delivery.timeout.ms": 10_000, "request.timeout.ms": 5_000}
WRITTEN_S = 15.0  # timeout for the last orders to be written or fail
FIRST, SECOND = "billing", "billing-2"
COUNTED = {
    AT_MOST_ONCE: (
        "It commits its offsets first, so orders that a kill interrupts are never processed again."
    ),
    AT_LEAST_ONCE: (
        "It commits its offsets last, so orders that a kill interrupts are processed again."
    ),
    EXACTLY_ONCE: "Invoices and offsets are one transaction, so a kill undoes both, or neither.",
}
BETWEEN = "The fault hit between two batches. Repeat the step to see its effect within a batch."


class Lesson:
    """The lesson of one reader. `page` is the address of the cluster's page, or ""."""

    def __init__(
        self,
        cluster: Cluster,
        processes: LessonProcesses,
        dialogue: Dialogue,
        tell: Callable[[str], None],
        page: str,
    ) -> None:
        self._cluster, self._processes, self._dialogue = cluster, processes, dialogue
        self._tell, self._page = tell, page
        self._runs = 0
        self._orders = self._invoices = ""
        self.steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("At most once", lambda: self._killed(AT_MOST_ONCE)),
            ("At least once", lambda: self._killed(AT_LEAST_ONCE)),
            ("Exactly once", lambda: self._killed(EXACTLY_ONCE)),
            ("A zombie", self._zombie),
            ("A hanging transaction", self._hanging),
        )

    def run(self, first: int = 1) -> None:
        """Run the steps from `first` on, until the end or until the reader quits."""
        number = first
        try:
            while number <= len(self.steps):
                title, step = self.steps[number - 1]
                self._tell("")
                self._tell(f"{number} of {len(self.steps)}: {title}")
                try:
                    self._do(step)
                    self._dialogue.forget()
                    self._tell("Enter: go on    r: repeat the step    q: quit")
                    self._dialogue.next()
                except Repeat:
                    continue
                except Skip:
                    self._tell("skipped")
                finally:
                    self._processes.stop((FIRST, SECOND))
                number += 1
        except Quit:
            return
        self._tell(
            "The lesson has ended. Test your own application in the same way: oncelog prove --help"
        )

    def _do(self, step: Callable[[], None]) -> None:
        """Run a step. If a problem ends the step, report it, and let the reader repeat the step."""
        try:
            step()
        except (Failure, KafkaError) as problem:
            self._tell(f"This step did not go as planned: {problem}")

    # --- steps 1 to 3

    def _killed(self, way: str) -> None:
        with self._writing_orders():
            pid = self._begin_to_invoice(way)
            self._tell(f"An application takes orders, {AT_A_TIME} at a time, and writes invoices.")
            self._tell(f"Kill it: kill -9 {pid}")
            self._ask(lambda: self._processes.has_ended(FIRST), self._kill_in_the_midst)
            self._tell(f"{FIRST} is gone, after {self._processes.invoiced[FIRST]} invoices.")
        self._begin(FIRST, way, FAST_S)
        self._tell("It was started again, and continues at its committed offsets.")
        lost, doubled = self._counted(FIRST)
        self._tell(f"{lost} orders have no invoice, and {doubled} have two. {COUNTED[way]}")
        if way != EXACTLY_ONCE and not lost and not doubled:
            self._tell(BETWEEN)
        self._look(f"/topics/{self._invoices}/0/records", "consume", self._invoices)

    def _kill_in_the_midst(self) -> None:
        if self._is_in_the_midst():
            self._processes.kill(FIRST)

    def _is_in_the_midst(self) -> bool:
        """Wait until the application has written some invoices of a batch, but not all.

        Return False if the application has ended.
        """
        processes, before = self._processes, self._processes.invoiced[FIRST]

        def is_there() -> bool:
            count = processes.invoiced[FIRST]
            return count > before and 3 <= count % AT_A_TIME <= 7

        self._settle(lambda: is_there() or processes.has_ended(FIRST), FIRST, "writes no invoices")
        return not processes.has_ended(FIRST)

    # --- step 4

    def _zombie(self) -> None:
        processes = self._processes
        with self._writing_orders():
            pid = self._begin_to_invoice(EXACTLY_ONCE)
            self._tell(f"It writes invoices in transactions. Stop it: kill -STOP {pid}")
            self._ask(
                lambda: processes.is_paused(FIRST) or processes.has_ended(FIRST),
                self._pause_in_the_midst,
            )
            if processes.has_ended(FIRST):
                raise Failure("it has ended instead of being stopped. Repeat the step.")
            self._begin(SECOND, EXACTLY_ONCE, FAST_S)
            self._tell(
                "It does nothing now. A second application with its transactional id takes over."
            )
            self._settle(lambda: processes.invoiced[SECOND] > 0, SECOND, "writes no invoices")
            self._tell(f"The second application works. Resume the first one: kill -CONT {pid}")
            self._ask(lambda: not processes.is_paused(FIRST), lambda: processes.resume(FIRST))
            self._settle(lambda: processes.has_ended(FIRST), FIRST, f"goes on. {BETWEEN}")
        if not processes.was_fenced(FIRST):
            raise Failure("the first one has ended without being fenced. Repeat the step.")
        self._tell(f"The first one was fenced, and has ended: {processes.said[FIRST][-1]}")
        lost, doubled = self._counted(SECOND)
        self._tell(
            f"{lost} orders have no invoice, and {doubled} have two: the coordinator gave the"
            " second one a newer epoch, and brokers refuse the older one."
        )
        self._look(f"/transactions/{self._name}", "txn explain", self._name)

    def _pause_in_the_midst(self) -> None:
        if self._is_in_the_midst():
            self._processes.pause(FIRST)

    # --- step 5

    def _hanging(self) -> None:
        self._new_topics()
        pid = self._begin(FIRST, LEAVES_OPEN)
        processes, key = self._processes, (self._orders, 0)
        self._settle(lambda: processes.said[FIRST] == ["open"], FIRST, "opens no transaction")
        self._tell(f"An application wrote an order in a transaction. Kill it: kill -9 {pid}")
        self._ask(lambda: processes.has_ended(FIRST), lambda: processes.kill(FIRST))
        self._write(10)
        with BlockingAdmin(self._cluster.client_config()) as admin:

            def held_back() -> int:
                ends = admin.list_offsets({key: LATEST})
                stable = admin.list_offsets({key: LATEST}, read_committed=True)
                return ends[key] - stable[key]

            self._tell(
                f"Ten orders were written after it. {held_back()} offsets cannot be read with"
                " read_committed: the transaction is open, for 15 minutes."
            )
            self._look(f"/topics/{self._orders}/0", "why", f"{self._orders}/0")
            self._tell(f"End it, on the page or by: {self._command('txn abort', self._name)}")
            self._ask(lambda: not held_back(), lambda: admin.transactions.end(self._name))
        self._tell("It is aborted: its record is skipped, and all records after it can be read.")

    # --- parts of steps

    @property
    def _name(self) -> str:
        return f"lesson-{self._runs}"

    def _begin(self, process: str, way: str, pause_s: float = SLOW_S) -> int:
        return self._processes.begin(
            process,
            pause_s=pause_s,
            bootstrap=self._cluster.bootstrap,
            way=way,
            orders=self._orders,
            invoices=self._invoices,
            name=self._name,
        )

    def _begin_to_invoice(self, way: str) -> int:
        """Start an application, wait until it writes invoices, and return its pid."""
        pid = self._begin(FIRST, way)
        self._settle(lambda: self._processes.invoiced[FIRST] > 0, FIRST, "writes no invoices")
        return pid

    @contextmanager
    def _writing_orders(self) -> Iterator[None]:
        """Create new topics, and write orders during the `with` block."""
        self._new_topics()
        is_over = Flag()
        config = {**self._cluster.client_config(), **NOT_FOR_LONG}

        def write() -> None:
            number = 0
            with contextlib.suppress(KafkaError), BlockingProducer(config) as producer:
                while not is_over.wait(LOOK_S):
                    while number < sum(self._processes.invoiced.values()) + AHEAD:
                        producer.send(self._orders, b"order %d" % number)
                        number += 1

        thread = threading.Thread(target=write, name="lesson-orders", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(WRITTEN_S)

    def _new_topics(self) -> None:
        self._runs += 1
        self._orders, self._invoices = f"orders-{self._runs}", f"invoices-{self._runs}"
        with BlockingAdmin(self._cluster.client_config()) as admin:
            admin.create_topic(self._orders, partitions=1)
            admin.create_topic(self._invoices, partitions=1)

    def _write(self, count: int) -> None:
        with BlockingProducer(self._cluster.client_config()) as producer:
            for number in range(count):
                producer.send(self._orders, b"order %d" % number)

    def _counted(self, process: str) -> tuple[int, int]:
        """Wait until all orders are processed, and compare them with the invoices.

        Returns the number of orders without an invoice, and the number with several invoices.
        """
        with BlockingAdmin(self._cluster.client_config()) as admin:
            key = (self._orders, 0)
            (end,) = admin.list_offsets({key: LATEST}).values()

            def is_done() -> bool:
                offset = admin.groups.committed(self._name).get(key)
                is_at_end = offset is not None and offset.offset == end
                return is_at_end and self._processes.said[process] == ["idle"]

            self._settle(is_done, process, "does not come to the end of the orders")
        orders, invoices = (self._values(topic) for topic in (self._orders, self._invoices))
        lost = sum(order not in invoices for order in orders)
        return lost, sum(count > 1 for count in invoices.values())

    def _values(self, topic: str) -> Counter[bytes | None]:
        config = self._cluster.client_config()
        of_reader = {**config, "isolation.level": "read_committed"}
        found: Counter[bytes | None] = Counter()
        with BlockingAdmin(config) as admin, BlockingConsumer(of_reader) as consumer:
            (end,) = admin.list_offsets({(topic, 0): LATEST}, read_committed=True).values()
            consumer.run(lambda each: _assign(each, topic))
            while consumer.position(topic, 0) < end:
                found.update(record.value for record in consumer.poll(500))
        return found

    def _settle(self, has_happened: Callable[[], bool], process: str, otherwise: str) -> None:
        """Wait until `has_happened()`, which needs no action of the reader.

        Raises Failure if `process` has ended, or after a minute with `otherwise`, which says what
        the process does not do. Raises Quit, Repeat or Skip at the reader's request.
        """
        deadline_s = time.monotonic() + SETTLED_S
        while not has_happened():
            has_ended = self._processes.has_ended(process)
            if has_happened():
                return
            if has_ended or time.monotonic() > deadline_s:
                words = "has ended" if has_ended else otherwise
                raise Failure(f"{process} {words}; {self._processes.last_words(process)}")
            self._dialogue.look()
            time.sleep(0.02)

    def _ask(self, has_happened: Callable[[], bool], do: Callable[[], object]) -> None:
        self._dialogue.forget()
        self._tell(KEYS)
        self._dialogue.until(has_happened, do)

    def _look(self, view: str, verb: str, name: str) -> None:
        if self._page:
            self._tell(f"Look: {self._page}{view}")
        self._tell(f"Look: {self._command(verb, name)}")

    def _command(self, verb: str, name: str) -> str:
        return shell_command(verb, name, data=self._cluster.data)


async def _assign(consumer: Any, topic: str) -> None:
    consumer.assign({(topic, 0): 0})

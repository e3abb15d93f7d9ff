"""The applications of the gallery, with their mistakes, expected verdicts and findings."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
CONFLUENT, OTHERS = HERE / "confluent", HERE / "others"
DATABASE, POSTGRESQL = "{directory}/rows.sqlite", "{postgresql}"
ANY_LOSS = ("AT MOST ONCE", "NEITHER")
ANY_DOUBLE = ("AT LEAST ONCE", "NEITHER")
ANY = ("AT LEAST ONCE", "AT MOST ONCE", "NEITHER")


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryEntry:
    """An application of the gallery.

    wrong: the mistake, in words, empty for a correct application. verdicts: each of these verdicts
    is a right one for it. findings: a run must name all of them. needs: a program that must be
    installed. options: settings of `ProveSettings`.
    """

    name: str
    client: str
    command: tuple[str, ...]
    wrong: str = ""
    verdicts: tuple[str, ...] = ()
    findings: frozenset[str] = frozenset()
    needs: str = "python3"
    sink: str = ""
    final: str = ""
    instances: int = 2
    start_timeout_s: float = 40.0

    @property
    def is_python(self) -> bool:
        return self.command[0] == sys.executable


def _confluent(
    file: str, name: str, called: str = "", protocol: str = "", **others
) -> GalleryEntry:
    command = (sys.executable, str(CONFLUENT / file), name, *filter(None, [protocol]))
    full = f"confluent-{called or name.replace('_', '-')}{protocol and '-' + protocol}"
    return GalleryEntry(name=full, client="confluent-kafka", command=command, **others)


def _transactions(name: str, *findings: str, **others) -> GalleryEntry:
    return _confluent("in_transactions.py", name, findings=frozenset(findings), **others)


def _plain(name: str, *findings: str, **others) -> GalleryEntry:
    file = "without_transactions.py"
    return _confluent(file, name, findings=frozenset(findings), **others)


def _patience(name: str, **others) -> GalleryEntry:
    return _confluent("patience.py", name, **others)


def _copier(
    family: str, client: str, file: str, name: str, *findings: str, **others
) -> GalleryEntry:
    return GalleryEntry(
        name=f"{family}-{name.replace('_', '-')}", client=client,
        command=(sys.executable, str(OTHERS / file), name), findings=frozenset(findings), **others,
    )  # fmt: skip


_handmade = partial(_copier, "handmade", "by hand", "handmade.py")
_aiokafka = partial(_copier, "aiokafka", "aiokafka", "aiokafka_copiers.py")


def _java(name: str, *findings: str, file: str = "Copier.java", **others) -> GalleryEntry:
    arguments = () if file != "Copier.java" else (name,)
    command = ("{java}", str(OTHERS / file), *arguments)
    return GalleryEntry(
        name=f"java-{name}", client="Java", command=command, findings=frozenset(findings),
        needs="mvn", **others,
    )  # fmt: skip


def _franz(name: str, *findings: str, **others) -> GalleryEntry:
    return GalleryEntry(
        name=f"franz-{name}", client="franz-go", command=("{franz}/franz", name),
        findings=frozenset(findings), needs="go", **others,
    )  # fmt: skip


def _kafkajs(name: str, *findings: str, **others) -> GalleryEntry:
    return GalleryEntry(
        name=f"kafkajs-{name}", client="kafkajs", command=("node", "{kafkajs}/copier.js", name),
        findings=frozenset(findings), needs="npm", **others,
    )  # fmt: skip


def _foreign(name: str, client: str, wrong: str, **others) -> GalleryEntry:
    return GalleryEntry(
        name=f"foreign-{name.replace('_', '-')}", client=client, wrong=wrong, verdicts=ANY,
        command=(sys.executable, str(HERE / "foreign" / f"{name}.py")), **others,
    )  # fmt: skip


WRONG = (
    _transactions(
        "offsets_outside", "offsets-outside-transaction",
        wrong="offsets by the consumer, after the transaction", verdicts=ANY_DOUBLE,
    ),
    _transactions(
        "offsets_outside", "offsets-outside-transaction", protocol="consumer",
        wrong="the same with group.protocol=consumer", verdicts=ANY_DOUBLE,
    ),
    _transactions(
        "auto_commit", "auto-commit",
        wrong="offsets by the consumer's timer, beside transactions", verdicts=ANY,
    ),
    _transactions(
        "read_uncommitted", "read-uncommitted",
        wrong="reads what was aborted", verdicts=ANY,
    ),
    _transactions(
        "shared_id", "shared-transactional-id",
        wrong="one transactional.id in all instances, no seek after it was fenced", verdicts=ANY,
    ),
    _transactions(
        "abort_without_seek", "abort-without-seek",
        wrong="goes on after an abort", verdicts=ANY_LOSS,
    ),
    _transactions(
        "plain_producer_beside", "plain-producer",
        wrong="half of the output by a second producer", verdicts=ANY_DOUBLE,
    ),
    _transactions(
        "too_long", "transaction-too-long",
        wrong="transactions last longer than they may, and go on with what comes next",
        verdicts=ANY,
    ),
    _transactions(
        "random_id", "random-transactional-id", "offsets-outside-transaction",
        wrong="a new id at each start, offsets outside", verdicts=ANY,
    ),
    _plain(
        "commit_before_send", "commit-before-output",
        wrong="offsets before the output", verdicts=ANY_LOSS,
    ),
    _plain(
        "plain_defaults", "no-idempotence",
        wrong="librdkafka's defaults, offsets after the output", verdicts=ANY_DOUBLE,
    ),
    _plain(
        "fresh_producer", "retry-in-fresh-producer",
        wrong="retries in a new producer", verdicts=ANY_DOUBLE,
    ),
    _plain(
        "counts_in_memory", "state-not-rebuilt",
        wrong="counts in memory, not rebuilt", verdicts=ANY,
        final="tests.prove.gallery.entries:counts",
    ),
    _plain(
        "sink_with_notes_apart", "sink-not-atomic",
        wrong="the note that a row is written is not in its transaction", verdicts=ANY_DOUBLE,
        sink=DATABASE,
    ),
    _aiokafka(
        "id_of_the_instance", "no-group-fencing",
        wrong="no group metadata, and an id of the instance", verdicts=ANY,
    ),
    _aiokafka(
        "acks_1", "acks-below-all", "auto-commit",
        wrong="aiokafka's defaults: acks=1, auto-commit", verdicts=ANY,
    ),
    _kafkajs(
        "transactional", "no-group-fencing",
        wrong="transactions without group metadata", verdicts=ANY,
    ),
    _java(
        "commits-sync", "offsets-outside-transaction",
        wrong="output in a transaction, then commitSync", verdicts=ANY_DOUBLE,
    ),
    _java(
        "uncommitted", "read-uncommitted",
        wrong="the consumer's default isolation level", verdicts=ANY,
    ),
    _franz("plain", "auto-commit", wrong="defaults: idempotent, auto-commit", verdicts=ANY),
    _kafkajs("plain", "no-idempotence", wrong="kafkajs's defaults", verdicts=ANY_DOUBLE),
)  # fmt: skip
# Applications with mistakes about slow or refused requests, written before such faults existed.
# Only some have expected findings, since a mistake is not always visible in the requests.
SLOW = (
    _patience(
        "refused_is_skipped", findings=frozenset({"abort-without-seek"}),
        wrong="a batch that was refused once is skipped", verdicts=ANY_LOSS,
    ),
    *(
        _patience(name, wrong=wrong, verdicts=verdicts)
        for name, wrong, verdicts in (
            (
                "new_id_after_a_slow_commit",
                "after a slow commit the batch again, by a producer with a new id", ANY_DOUBLE,
            ),
            (
                "resend_after_four_seconds",
                "what is not delivered after 4 s is written again", ANY_DOUBLE,
            ),
            ("refused_is_left_out", "a record that was refused once is left out", ANY_LOSS),
            (
                "begins_anew_without_offsets",
                "offsets that are not told are taken for none", ANY_DOUBLE,
            ),
        )
    ),
    _aiokafka(
        "unawaited", "passed-over",
        wrong="commits whatever became of its records", verdicts=ANY_LOSS,
    ),
    _aiokafka(
        "impatient",
        wrong="a send that was given up after 3 s is done again", verdicts=ANY_DOUBLE,
    ),
    _handmade(
        "end_before_produce", "commit-before-produce",
        wrong="the transaction ends before its batches are answered", verdicts=ANY_LOSS,
    ),
    _handmade(
        "other_records", "same-sequence-other-bytes",
        wrong="a batch without an answer is made anew, with the same number", verdicts=ANY,
    ),
)  # fmt: skip
# Written without knowledge of plan and findings: their mistakes are in foreign/README.md.
FOREIGN = (
    _foreign("cooperative_drop_batch", "confluent-kafka", "drops a batch without a seek back"),
    _foreign("seen_too_early", "kafka-python", "an id is seen when it is read"),
    _foreign("position_of_chunk", "kafka-python", "a chunk commits the end of the whole poll"),
    _foreign("transaction_per_worker", "confluent-kafka", "the furthest offset of its workers"),
    _foreign(
        "sqlite_with_connection", "confluent-kafka", "with database: opens no transaction",
        sink=DATABASE,
    ),
    _foreign("transaction_per_instance", "aiokafka", "no group metadata"),
    _foreign("fenced_comes_back", "aiokafka", "fenced, it sends its batch by a new producer"),
    _foreign("resend_on_timeout", "kafka-python", "sends again what was not answered"),
    _foreign("output_read_at_start", "aiokafka", "reads what is done at its start only"),
    _foreign("two_stages", "kafka-python", "a topic between is read uncommitted"),
)  # fmt: skip
RIGHT = (
    _transactions("right"),
    _transactions("right", protocol="consumer"),
    _plain("sink_with_upsert", sink=DATABASE),
    _plain("postgresql_with_upsert", sink=POSTGRESQL, needs="initdb"),
    _aiokafka("right"),
    _patience("patient_commit"),
    _patience("patient_delivery"),
    _patience("refused_is_tried_again"),
    _patience("asks_again_for_offsets"),
    _aiokafka("patient"),
    _handmade("right"),
    GalleryEntry(
        name="oncelog-right", client="oncelog",
        command=(sys.executable, str(OTHERS / "oncelog_copier.py")),
    ),
    GalleryEntry(
        name="oncelog-right-consumer", client="oncelog",
        command=(sys.executable, str(OTHERS / "oncelog_copier.py"), "consumer"),
    ),
    _java("right"),
    _java("streams", file="StreamsCopier.java"),
    _franz("right"),
    GalleryEntry(  # a query has one driver, which keeps its offsets in a checkpoint
        name="spark", client="Spark", instances=1, start_timeout_s=240.0,
        command=(sys.executable, str(OTHERS / "spark_job.py"), "{directory}/checkpoint"),
    ),
)  # fmt: skip
ENTRIES = {entry.name: entry for entry in (*RIGHT, *WRONG, *SLOW, *FOREIGN)}


def counts(inputs) -> dict[str, str]:
    """Return the expected final values of `counts_in_memory`."""
    import json
    from collections import Counter

    found = Counter(f"{json.loads(r.value)['customer']}/{r.partition}" for r in inputs)
    return {key: str(count) for key, count in found.items()}

"""Test that generated pages equal the code, and that links and commands in pages exist.

docs/protocol.md, docs/configuration.md and docs/client.md are generated from tables in the code.
After a change of these, write the pages anew:

.venv/bin/python -m tests.tidy.test_docs
"""

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.client.settings import ADMIN, CONSUMER, PRODUCER, SECURITY, Setting
from oncelog.client.transactions.producer_state import ALLOWED, CALLS, Call, ProducerState
from oncelog.coordinator.groups.group_table import METADATA_BYTES_MAX as GROUPS_BYTES_MAX
from oncelog.node.config.broker_config import BROKER_KEYS
from oncelog.node.config.group_configs import GROUP_KEYS
from oncelog.node.config.keys import BrokerKey
from oncelog.node.config.tuning_keys import TUNING_KEYS
from oncelog.node.handlers.api_table import served_apis
from oncelog.node.handlers.groups.members import METADATA_BYTES_MAX as MEMBER_BYTES_MAX
from oncelog.node.handlers.groups.offset_commits import OFFSETS_MAX
from oncelog.node.listener.connection_state import UNATTENDED_MAX_S
from oncelog.node.listener.dispatch import Api
from oncelog.node.listener.large_requests import ASIDE_AFTER_S, ASIDE_BYTES_MAX, IN_WORK_BYTES_MAX
from oncelog.proof.conformance.compare import REASONS, ConformanceRow, compared
from oncelog.proof.conformance.survey import api_label, version_range
from oncelog.storage.topic_configs import TOPIC_CONFIGS
from oncelog.wire.messages.apis import API_NAMES
from oncelog.wire.primitives import REQUEST_ELEMENTS_MAX

from ..interop.administration import meant_outcomes
from ..proof.conformance import recorded
from .house import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = {str(2**31 - 1): "2^31 - 1", str(2**63 - 1): "2^63 - 1"}
MADE = "<!-- From here on made from the code. -->\n"
REMARKS = {
    0: "acks 0, 1 and all; batches of format 2 only; from version 13 topics by id; a batch with "
    "the sequence numbers of an aborted batch gets UNKNOWN_PRODUCER_ID, and Kafka acknowledges it "
    "without storing it, or answers OUT_OF_ORDER_SEQUENCE_NUMBER",
    1: "to the high watermark; from version 13 topics by id; sessions (KIP-227)",
    22: "version 6 opens and keeps prepared transactions (KIP-939); in Kafka it is not stable yet",
    29: "SECURITY_DISABLED where no `authorizer.class.name` is given",
    30: "SECURITY_DISABLED where no `authorizer.class.name` is given",
    34: "a broker has one directory",
    **dict.fromkeys(range(38, 42), "not allowed on a plain text listener, as on Kafka's"),
    36: "another request during a login closes the connection; Kafka first answers with an error",
    57: "levels of `transaction.version`, `group.version` and `kraft.version`",
    64: "only for a stopped broker; Kafka also unregisters live brokers, whose processes go on",
    **dict.fromkeys(
        (80, 81),
        "UNSUPPORTED_VERSION, as in Kafka with `kraft.version` 0; with 1, too: voters never change",
    ),
    94: "removes nothing: unknown and active controllers are refused, other voters get no error",
    31: "SECURITY_DISABLED where no `authorizer.class.name` is given",
}


def _cap(what: str, key: str, beyond: str, librdkafka: str, java: str) -> tuple[str, ...]:
    return what, f"`{key}`", str(BROKER_KEYS[key].default), beyond, librdkafka, java


VALIDATION = (
    (
        "`batch`", "the header and its checksum",
        "invalid bytes as records: readers stop at such a batch. A wrong count or maximum "
        "timestamp that is plausible: retention and searches by time use it",
    ),
    (
        "`skeleton`",
        "the lengths of the records add up to the batch, the header has the number of records, and "
        "offsets ascend by one; the maximum timestamp is set to that of the records",
        "a wrong length of a key, a value or a header: readers stop at such a record",
    ),
    ("`full`", "every field of every record", "only records that can be read"),
)  # fmt: skip
CAPS = (
    _cap(
        "transactional ids of a shard", "oncelog.transactional.ids.max",
        "InitProducerId of a new id: POLICY_VIOLATION",
        "asks again until the timeout of `init_transactions`, which fails, retriable",
        "a KafkaException (\"Unexpected error in InitProducerIdResponse\"), fatal",
    ),
    _cap(
        "open transactions of a shard", "oncelog.transactions.open.max",
        "a request that would open one more: CONCURRENT_TRANSACTIONS",
        "backs off and asks again", "backs off and asks again",
    ),
    _cap(
        "partitions of a transaction", "oncelog.transaction.partitions.max",
        "a request that would add one more: POLICY_VIOLATION",
        "the transaction must be aborted; if it is still empty, the abort fails with a fatal error "
        "(INVALID_TXN_STATE, as on Kafka)",
        "PolicyViolationException; the transaction must be aborted",
    ),
    _cap(
        "producers over all partitions of a broker", "oncelog.producer.ids.max",
        "no error: the broker forgets producers that were silent for the longest time, except "
        "those with an open transaction and those that wrote within five minutes",
        "no effect: a forgotten producer may continue with any sequence number",
        "the same",
    ),
)  # fmt: skip


FIXED_CAPS = (
    (f"{REQUEST_ELEMENTS_MAX:,} elements of all arrays of a request", "the connection is closed"),
    (
        f"{IN_WORK_BYTES_MAX:,} bytes of large requests of one API in work, or one request",
        "the others wait for their turn, and end with their client; one that waits over "
        f"{ASIDE_AFTER_S:g} s for a decision steps aside, "
        f"at most {ASIDE_BYTES_MAX:,} bytes of them",
    ),
    (
        f"{UNATTENDED_MAX_S:g} s without an answer to a client that has closed its direction of "
        "the connection",
        "the connection is closed; Kafka keeps it for `connections.max.idle.ms`",
    ),
    (
        f"{MEMBER_BYTES_MAX:,} bytes of protocols of a member, names and metadata",
        "JoinGroup: INVALID_REQUEST",
    ),
    (
        f"{GROUPS_BYTES_MAX:,} bytes of ids and protocols of all members, pending ones, too, of"
        " groups that are in one partition of `__consumer_offsets`",
        "JoinGroup: GROUP_MAX_SIZE_REACHED",
    ),
    (
        f"{OFFSETS_MAX:,} offsets, committed or pending, in one partition of `__consumer_offsets`",
        "OffsetCommit, TxnOffsetCommit of new ones: INVALID_COMMIT_OFFSET_SIZE",
    ),
)


def served() -> list[Api]:
    """Return the APIs that a broker serves, by key."""
    return sorted(served_apis(logging.getLogger(__name__)), key=lambda api: int(api.key))


def api_rows(rows: Iterable[ConformanceRow]) -> list[tuple[str, ...]]:
    """Return a table row for each API, with Kafka's versions, ours, and a reason if they differ."""
    own = {int(api.key): api for api in served()}
    theirs = recorded.kafka().apis
    reasons = {row.name: row.reason for row in rows if row.kind == "api"}
    found: list[tuple[str, ...]] = []
    for key in sorted(own.keys() | theirs.keys()):
        remark = REMARKS.get(key, reasons.get(api_label(key), ""))
        api, other = own.get(key), theirs.get(key)
        if api is not None and api.advertised_from is not None:
            note = f"advertised from {api.advertised_from}, as Kafka does for old librdkafka"
            remark = f"{remark}; {note}" if remark else note
        found.append(
            (
                str(key),
                api_label(key),
                "-" if other is None else version_range(other.oldest, other.newest),
                "-" if api is None else version_range(api.min_version, api.max_version),
                remark,
            )
        )
    return found


def feature_rows(rows: Iterable[ConformanceRow]) -> list[tuple[str, ...]]:
    return [(r.name, r.theirs, r.ours, r.reason) for r in rows if r.kind == "feature"]


def key_rows(rows: Iterable[ConformanceRow]) -> list[tuple[str, ...]]:
    """Return a table row for each reason for which broker keys differ from Kafka's.

    A row has the reason, the kind of difference, and the number and names of the keys.
    """
    families: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.kind == "config" and not row.is_equal:
            kind, _, name = row.name.partition(" ")
            families.setdefault((row.reason, kind), []).append(f"`{name}`")
    return [
        (reason, kind, str(len(keys)), ", ".join(keys)) for (reason, kind), keys in families.items()
    ]


def meant_rows() -> list[tuple[str, ...]]:
    """Return a table row for each reason for which oncelog differs from Kafka on purpose."""
    names: dict[str, dict[str, None]] = {}
    known = meant_outcomes.CALLS | meant_outcomes.COMMANDS | meant_outcomes.FORMS
    for name, reason in known.items():
        names.setdefault(reason, {})[f"`{name}`"] = None
    for line in meant_outcomes.LINES:
        names.setdefault(line.reason, {})[f"lines of `{line.command}`"] = None
    return [(", ".join(found), reason) for reason, found in names.items()]


def protocol_page() -> str:
    rows = compared(recorded.ours(), recorded.kafka(), REASONS)
    return f"""# The protocol that is served

This page compares the APIs and versions that a broker serves with those of Apache Kafka 4.4.0. It
is made from the broker's table of APIs (`node/handlers/api_table.py`) and from the answers of
Kafka (`oncelog conformance`, [conformance](conformance.md)). `tests/tidy/test_docs.py` checks it.

A request with an API key or a version that is not in the table closes its connection, as in Kafka.
Only ApiVersions is answered with UNSUPPORTED_VERSION and the supported versions. The broker's log
(once) and `oncelog doctor` name the client, the API and the version. Most clients never send such
a request, since they read the supported APIs from ApiVersions.

A client may close its direction of a connection after its last request, with or without TLS. The
broker answers all its requests and then closes the connection, as in Kafka.

{table(("key", "API", "Kafka 4.4", "ours", "remarks, or why not"), api_rows(rows))}
[groups](groups.md) describes consumer groups (KIP-848), and the parts of them that are missing.

## Features

{table(("feature", "Kafka 4.4", "ours", "why"), feature_rows(rows))}
## Java's Admin and Kafka's tools

Tests call each method of Java's Admin and some 190 commands of Kafka's tools on three oncelog nodes
and on three nodes of Kafka 4.4 (`tests/interop/administration/`). The outcomes are the same, and
messages begin with Kafka's text, with these exceptions:

{table(("call or command", "why"), meant_rows())}
## What is bounded

oncelog limits some numbers that Kafka does not limit. These keys are described in
[configuration](configuration.md). The answers to refused requests have no field for a message, so
the coordinator's log names the key. The table shows the effect on librdkafka 2 and on Kafka's own
Java client.

{table(("at most", "key", "default", "beyond it", "librdkafka then", "Java then"), CAPS)}
These limits are fixed. They are far above the needs of a normal client.

{table(("at most", "beyond it"), FIXED_CAPS)}
## Configuration keys that Kafka 4.4 shows and a broker of ours does not

The supported keys are in [configuration](configuration.md).

{table(("why", "resource", "number", "keys"), key_rows(rows))}"""


def configuration_page() -> str:
    own = [
        key
        for key in BROKER_KEYS.values()
        if key.topic_config is None and not key.not_served and key.name not in TUNING_KEYS
    ]
    tuning_rows = [(f"`{key.name}`", default_of(key)) for key in TUNING_KEYS.values()]
    refused = [key for key in BROKER_KEYS.values() if key.not_served]
    broker_rows = [
        (f"`{key.name}`", key.type.name.lower(), default_of(key), kafka_default_of(key), key.doc)
        for key in own
    ]
    topic_rows = [
        (
            f"`{row.name}`",
            row.type.name.lower(),
            value(row.default),
            f"`{row.broker_name}`" if row.broker_name else "",
            row.doc,
        )
        for row in TOPIC_CONFIGS.values()
        if not row.not_served and not row.is_internal
    ]
    group_rows = [
        (
            f"`{name}`",
            row.key.type.name.lower(),
            value(row.key.default or ""),
            f"`{row.broker_name}`",
            row.key.doc,
        )
        for name, row in GROUP_KEYS.items()
        if not row.key.not_served
    ]
    refused_rows = [(f"`{key.name}`", default_of(key), str(key.not_served)) for key in refused] + [
        (f"`{row.name}` (topic)", value(row.default), row.not_served)
        for row in TOPIC_CONFIGS.values()
        if row.not_served and row.name not in BROKER_KEYS
    ]
    refused_rows += [
        (f"`{name}` (group)", value(row.key.default or ""), row.key.not_served)
        for name, row in GROUP_KEYS.items()
        if row.key.not_served
    ]
    return f"""# Configuration

This page lists all settings of brokers, topics and groups. It is made from the tables of
`node/config/broker_keys.py` and `storage/topic_configs.py`, and checked by
`tests/tidy/test_docs.py`. Names are Kafka's. Only `cluster.id` and names that begin with `oncelog.`
are our own, and `kafka-configs --describe --all` lists the latter, too. An unknown name, and a
value that is not supported, is refused with an error.

## Broker

Set broker keys with `oncelog up --config KEY=VALUE`, or in a `server.properties`. The fourth column
has Kafka's default if it differs. `oncelog up` writes six of these defaults, which make a
fail-over fast, into server.properties. `oncelog up --profile kafka` writes Kafka's defaults of
these six: `broker.session.timeout.ms`, `broker.heartbeat.interval.ms`, `replica.lag.time.max.ms`,
`offsets.topic.num.partitions`, `transaction.state.log.num.partitions` and
`group.initial.rebalance.delay.ms`. With each profile it sets
`transaction.two.phase.commit.enable` to `true`.

Some keys can also be changed while brokers run, by any admin client: defaults of topics, limits of
connections, rates of throttled replication, and some of the keys without effect. They are set for
all brokers (an empty name; `kafka-configs --entity-type brokers --entity-default`) or for one
broker (`--entity-name 1`). The value for one broker overrides the value for all. The log levels of
a broker are its resource BROKER_LOGGER (`--entity-type broker-loggers`), and are lost when the
broker ends.

{table(("key", "type", "default", "Kafka's", "what"), broker_rows)}
### Validation of records

`oncelog.record.validation` sets how much of a client's batch the leader checks. Each level also
checks everything of the levels above it in the table. In compacted topics the leader always checks
everything, and that each record has a key. Apache Kafka checks as much as `full`.

Without a value, a broker whose listeners and advertised addresses are on loopback uses `batch`,
since its clients are programs of this machine. Other brokers use `skeleton`. With small records
this level costs as much as the rest of the produce
([decision 0015](decisions/0015-validation-of-records.md)). An invalid batch is refused with
INVALID_RECORD. A timestamp beyond `message.timestamp.before.max.ms` or
`message.timestamp.after.max.ms` is refused with INVALID_TIMESTAMP.

{table(("level", "checks", "accepts"), VALIDATION)}
Some headers are implausible: more records than the bytes can hold, or a maximum timestamp below the
base timestamp. In this case the leader decodes the records at every level. If the header is wrong,
the batch is refused. Otherwise the maximum timestamp is set to that of the records. Compressed
records are decompressed up to 64 MiB.

## Topic

Set topic properties with `oncelog topic create NAME --config KEY=VALUE`, and change them with
`oncelog topic alter` or any admin client. The fourth column has the broker key that gives the
default. With three or more nodes, `min.insync.replicas` is 2 by default.

{table(("key", "type", "default", "broker key", "what"), topic_rows)}
## Group

Set group properties with any admin client, for the resource type GROUP
(`kafka-configs --entity-type groups`). They apply to groups with `group.protocol=consumer`. At most
1,000 groups may have properties, and values must be within the limits of the broker's keys. The
fourth column has the broker key that gives the default.

{table(("key", "type", "default", "broker key", "what"), group_rows)}
## Keys without effect

These keys of Kafka are accepted and described, but have no effect here. In Kafka they tune threads,
buffers, timers, internal topics, or tiered storage. The dynamic ones among them can be changed
while brokers run, like in Kafka. The log tells which of these keys are set.

{table(("key", "Kafka's default"), tuning_rows)}
## Known, with one value

{table(("key", "only", "because"), refused_rows)}"""


def client_page() -> str:
    """Return docs/client.md with its handwritten first part and with tables made from the code."""
    sections: list[tuple[str, Sequence[Setting]]] = [
        (name, [row for row in rows if row not in SECURITY])
        for name, rows in (("Producer", PRODUCER), ("Consumer", CONSUMER), ("Admin", ADMIN))
    ]
    sections.append(("Security, of all of them", SECURITY))
    tables = "".join(f"## {name}\n\n{client_table(rows)}\n" for name, rows in sections)
    steps = [(f"`{s.name}`", names(ALLOWED[s])) for s in ProducerState]
    calls = [(f"`{call.value}`", names(CALLS[call])) for call in Call]
    by_hand = (ROOT / "docs/client.md").read_text(encoding="utf-8").partition(MADE)[0]
    return f"""{by_hand}{MADE}
## States of a producer

{table(("state", "next"), steps)}
{table(("call", "in"), calls)}
{tables}"""


def names(states: Iterable[ProducerState]) -> str:
    """Return the names of these states in code quotes, in the order of the enumeration."""
    found = [f"`{s.name}`" for s in ProducerState if s in set(states)]
    return ", ".join(found)


def client_table(rows: Iterable[Setting]) -> str:
    shown = [
        (
            " or ".join(f"`{name}`" for name in (r.name, *r.aliases)),
            r.kind.__name__.lower(),
            client_default(r.default),
            r.doc,
        )
        for r in rows
    ]
    return table(("name", "type", "default", "what"), shown)


def client_default(default: object) -> str:
    """Return the default of a client setting in the form of a properties file."""
    if default is None or default == ():
        return ""
    if isinstance(default, tuple):
        return value(",".join(default))
    return value(str(default).lower() if isinstance(default, bool) else str(default))


def default_of(key: BrokerKey) -> str:
    """Return the default of a broker key in code quotes, or "must be given" if it has none."""
    return "must be given" if key.default is None else value(key.default)


def kafka_default_of(key: BrokerKey) -> str:
    """Return Kafka's default of a broker key if it differs from ours, otherwise ""."""
    return "" if key.kafka_default is None else value(key.kafka_default)


def value(text: str) -> str:
    """Return a value in code quotes, "" for "", and the largest numbers as powers of two."""
    return f"`{LONGEST.get(text, text)}`" if text else ""


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table with each row in one line."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


PAGES = {
    "docs/protocol.md": protocol_page,
    "docs/configuration.md": configuration_page,
    "docs/client.md": client_page,
}


@pytest.mark.parametrize("page", PAGES)
def test_generated_docs_page_equals_the_output_of_its_generator(page: str) -> None:
    written = (ROOT / page).read_text(encoding="utf-8")
    assert written == PAGES[page](), "write it anew: .venv/bin/python -m tests.tidy.test_docs"


def test_served_apis_have_names_and_remarks_exist_only_for_served_apis() -> None:
    keys = {api.key for api in served()}
    assert keys <= set(API_NAMES)
    assert set(REMARKS) <= keys


def test_readme_has_the_test_command_of_the_build() -> None:
    found = re.findall(r"^\$ (python3 -m venv .*pytest.*)$", README, re.MULTILINE)
    assert len(found) == 1
    assert "&& .venv/bin/python -m pytest" in found[0]


def plain_words(text: str) -> str:
    return re.sub(r"[_\-\s]+", " ", text.lower())


def test_glossary_terms_occur_in_the_files_they_name() -> None:
    wrong: list[str] = []
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        files = re.findall(r"[\w/]+\.(?:py|md)", cells[-1])
        if len(cells) == 3 and files:
            text = plain_words(" ".join((ROOT / f).read_text(encoding="utf-8") for f in files))
            terms = re.split(r", | and ", cells[0])
            wrong += [f"{term}: {files}" for term in terms if plain_words(term) not in text]
    assert wrong == []


@pytest.mark.parametrize("page", ["README.md", "docs/ARCHITECTURE.md"])
def test_readme_and_architecture_page_have_at_most_200_lines(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/ARCHITECTURE.md", "docs/internals.md", "CHANGELOG.md", "CONTRIBUTING.md"],
)
def test_docs_page_names_only_existing_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text)
    folders = "|".join(("docs", "tests", *MAY_IMPORT))
    named = {ROOT / name for name in re.findall(rf"`((?:{folders})/[\w./-]*)`", text)}
    named |= {(ROOT / page).parent / link for link in linked}
    assert [str(file) for file in named if not file.exists()] == []


def test_docs_table_has_a_separator_below_its_header() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    wrong: list[str] = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for lines in re.findall(r"(?:^\|.*\n)+", text, re.M):
            if not re.fullmatch(r"[|: -]+", lines.splitlines()[1 % lines.count("\n")]):
                wrong.append(f"{page.name}: {lines.splitlines()[0]}")
    assert wrong == []


def test_readme_and_cluster_page_name_only_existing_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = README + (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    written = re.findall(r"(?:^\$ |\| |/|`)oncelog ((?:(?:topic|bench|log) )?[a-z]+)", text, re.M)
    assert len(set(written)) > 8
    for command in set(written):
        assert run([*command.split(), "--help"]) == 0, command
        assert f"Usage: oncelog {command}" in capsys.readouterr().out


if __name__ == "__main__":
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
        print("written:", name)

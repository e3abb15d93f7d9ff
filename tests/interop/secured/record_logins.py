"""Record the messages of clients and brokers about logins, with oncelog and Apache Kafka.

    python -m tests.interop.secured.record_logins [--write] [--only CLIENT]

tries the logins of `login_script` on both clusters, and prints the differences. --write also stores
the messages in recorded/logins.json, and generates the table of docs/security.md from this file.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .login_players import NAMES, Player, missing, player
from .login_script import IN, cases
from .login_table import KEPT, recorded, write_table
from .logins import Logins
from .secured_kafka import SecuredKafka
from .secured_oncelog import SecuredOncelog

OURS, KAFKA = "oncelog", "kafka"
SETTINGS = {"connection.failed.authentication.delay.ms": "100"}
# Kafka's peer has short sessions there, of which kafkajs makes an error.
OF_KAFKA = {"listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "0"}
SELECTOR = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.Selector=info"
SETTLES_S = 0.3
BROKER, ITS_CLIENT = "broker", "oncelog"  # also the messages of the broker to this client
LIMITED = "more lines of this kind"  # our broker logs ten lines of a kind a minute
TOKEN = "token for others"
# docs/security.md names these: they continue although their token was refused. Kafka answers with
# an error and closes the connection, which aiokafka takes for an answer; our broker closes it.
MEANT = {("aiokafka", TOKEN), ("kafkajs", TOKEN)}
# Parts of messages that differ between two runs.
_CHANGING = (
    (re.compile(r"\b(localhost|127\.0\.0\.1)[:/ ]+\d{4,5}\b"), r"\1:PORT"),
    (re.compile(r"/127\.0\.0\.1(:PORT)?"), "127.0.0.1"),
    (re.compile(r"channelId=[\w.:\-]+"), "channelId=ID"),
    (re.compile(r"\[[A-Za-z]+ clientId=[^\]]*\] "), ""),
    (re.compile(r"\('(\S+)', \d{4,5}(, [^)]*)?\)"), r"('\1', PORT)"),
    (re.compile(r"(after|in) \d+ ?ms\b"), r"\1 N ms"),
    (re.compile(r"\b[0-9A-F]{12,16}:error:"), "error:"),
    (re.compile(r"\b\d{13}\b|\b\d{4}-\d\d-\d\dT[\d:]+Z"), "TIME"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "0x"),
    (re.compile(r"\(_ssl\.c:\d+\)"), "(_ssl.c)"),
    (re.compile(r"/\S+?/(\w[\w\-]*\.(pem|properties|c))"), r"\1"),
    (re.compile(r"PORT-\d+|rdkafka#\S+"), "ID"),
    (re.compile(r"id(=|: )-?\d+"), r"id\1N"),
    (re.compile(r"^[\w.]+ - (\[SocketServer[^\]]*\] )?"), ""),
    (re.compile(r"\{\"sub\".*?\}"), "{...}"),
)  # fmt: skip
Said = dict[str, Any]


@contextmanager
def peers(folder: Path) -> Iterator[dict[str, Any]]:
    """Run both secured brokers, and yield them by name."""
    common = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        **SETTINGS,
    }
    with (
        SecuredOncelog(folder / OURS, common) as ours,
        SecuredKafka(folder / KAFKA, SETTINGS | OF_KAFKA, (SELECTOR,)) as kafka,
    ):
        yield {OURS: ours, KAFKA: kafka}


def plain_words(words: str) -> str:
    """Return a message without the parts that change from run to run."""
    for pattern, instead in _CHANGING:
        words = pattern.sub(instead, words)
    return words.strip()


def play(names: tuple[str, ...], folder: Path) -> Said:
    """Try all logins, and return the messages as {client or "broker": {case: {side: text}}}."""
    said: Said = {name: {} for name in names}
    with peers(folder / "brokers") as both:
        for name in names:
            for side, peer in both.items():
                client_name = ITS_CLIENT if name == BROKER else name
                place = folder / "clients" / f"{name}-{side}"
                with player(client_name, place, peer.provider.url("token")) as client:
                    heard = _broker_words if name == BROKER else _client_words
                    for case, words in heard(peer, client, folder / "brokers" / side):
                        said[name].setdefault(case, {})[side] = words
                        print(f"{name} at {side}: {case}: {words[:200]}", flush=True)
    return said


def _client_words(peer: Logins, client: Player, _: Path) -> Iterator[tuple[str, str]]:
    for case in cases(peer):
        yield case.name, plain_words(client.log_in(case.values))


def _broker_words(peer: Logins, client: Player, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the broker's log message for the first login of each fault.

    The broker limits the rate of its messages, so it would not log every login.
    """
    log, told = folder / "node-1.log", set[str]()
    for case in cases(peer):
        if case.wrong and case.wrong not in told:
            told.add(case.wrong)
            before = log.stat().st_size
            client.log_in(case.values)
            time.sleep(SETTLES_S)
            lines = [line for line in _lines(log, before) if LIMITED not in line]
            yield case.name, lines[0] if lines else "nothing"


def _lines(log: Path, start: int) -> list[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        text = file.read()
    found = (re.sub(r"^.*?(INFO|WARNING|WARN|ERROR):? ", "", line) for line in text.splitlines())
    return list(dict.fromkeys(plain_words(line) for line in found if line.strip()))


def kind(words: str) -> str:
    """Return "in" or the kind of the error, as far as a program can distinguish it.

    librdkafka reports a failed handshake as _TRANSPORT or as _SSL, depending on its poll.
    """
    found = words.partition(":")[0]
    return "_TRANSPORT" if found == "_SSL" else found


def differences(said: Said) -> list[str]:
    """List the logins that one broker accepts and the other refuses, or refuses differently."""
    return [
        f"{name}, {case}: {kind(of[OURS])} at ours, {kind(of[KAFKA])} at Kafka"
        for name, of_client in said.items()
        if name != BROKER
        for case, of in of_client.items()
        if kind(of[OURS]) != kind(of[KAFKA]) and (name, case.partition(":")[0]) not in MEANT
    ]


def wrongly_judged(said: Said) -> list[str]:
    """List valid logins that a broker refuses, and invalid logins that a broker accepts."""
    return [
        f"{name} at {side}, {case}: {words}"
        for name, of_client in said.items()
        if name != BROKER
        for case, of in of_client.items()
        for side, words in of.items()
        if (words == IN) != case.startswith("right")
        and (side == OURS or (name, case.partition(":")[0]) not in MEANT)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", choices=(*NAMES, BROKER))
    options = parser.parse_args()
    all_names = (BROKER, *(name for name in NAMES if not missing(name)))
    names = (options.only,) if options.only else all_names
    for name in NAMES:
        if why := missing(name):
            print(f"{name} is left out: {why}")
    with tempfile.TemporaryDirectory() as folder:
        said = play(names, Path(folder))
    found = [*differences(said), *wrongly_judged(said)]
    print(*found, sep="\n")
    print(f"{len(found)} differences")
    if options.write:
        if options.only:
            said = {**recorded(), options.only: said[options.only]}
        KEPT.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        write_table()
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

"""The commands of Kafka's tools, in an order in which later commands use earlier results."""

import re
from typing import NamedTuple

TOOLS = "org.apache.kafka.tools."
FORMATTERS = f"{TOOLS}consumer."


_KEY = re.compile(r"([\w.-]+)=(?:\[[^]]*\]|[^,]+)")


class Command(NamedTuple):
    """A command of one of Kafka's tools, with instructions for comparing its output.

    In `arguments`, a name in braces stands for the cluster's bootstrap line, or for a text from the
    output of an earlier command. text: the standard input. takes: a name, and the expression that
    finds the text of this name in the output. is_exact: numbers in the outputs must be equal.
    begins: the tool keeps running during the next commands. ends: the running tool is ended.
    until: the command is repeated until this expression matches the output. forms: expressions and
    the words that replace their matches in the output.
    """

    name: str
    tool: str
    arguments: str
    text: str = ""
    takes: tuple[str, str] = ("", "")
    is_exact: bool = False
    begins: bool = False
    ends: bool = False
    until: str = ""
    forms: tuple[tuple[str, str], ...] = ()
    server: str = "--bootstrap-server {bootstrap} "
    seconds: int = 40


def of_tool(tool: str, *rows: Command) -> tuple[Command, ...]:
    return tuple(row._replace(tool=TOOLS + tool) for row in rows)


def row(name: str, arguments: str, text: str = "", **options: object) -> Command:
    return Command(name, "", arguments, text)._replace(**options)


def _topic(options: str = "") -> str:
    return f"--create --topic t --partitions 3 --replication-factor 3 {options}"


TOPICS = of_tool(
    "TopicCommand",
    row("topics create", _topic(), is_exact=True),
    row("topics create again", _topic()),
    row("topics create if not exists", _topic("--if-not-exists"), is_exact=True),
    row(
        "topics create by assignment",
        "--create --topic assigned --replica-assignment 1:2,2:3,3:1",
        is_exact=True,
    ),
    row("topics create dotted", "--create --topic a.b --partitions 1 --replication-factor 1"),
    row("topics colliding", "--create --topic a_b --partitions 1 --replication-factor 1"),
    row("topics unknown config", "--create --topic u --config no.such.key=1"),
    row("topics bad value", "--create --topic u --config retention.ms=x"),
    row("topics bad name", "--create --topic a/b"),
    row("topics too many replicas", "--create --topic u --replication-factor 9"),
    row("topics list", "--list --exclude-internal", is_exact=True),
    row("topics describe", "--describe --topic t", takes=("topic_id", r"TopicId: (\S+)")),
    row("topics describe assigned", "--describe --topic assigned", is_exact=True),
    row("topics describe by id", "--describe --topic-id {topic_id}"),
    row("topics describe unknown", "--describe --topic nope"),
    row("topics add partitions", "--alter --topic assigned --partitions 4", is_exact=True),
    row("topics add partitions unknown", "--alter --topic nope --partitions 4"),
    row("topics fewer partitions", "--alter --topic assigned --partitions 1"),
    row("topics describe again", "--describe --topic assigned"),
    row("topics under-replicated", "--describe --under-replicated-partitions", is_exact=True),
    row("topics with overrides", "--describe --topics-with-overrides"),
)


def _alter(entity: str, config: str) -> str:
    return f"--alter {entity} --add-config {config}"


def _entity(name: str, entity: str, config: str) -> tuple[Command, ...]:
    """Return the commands that set, describe and delete a config of an entity.

    All but the first are repeated until their output is right, since a change may reach the
    asked broker late.
    """
    keys = _KEY.findall(config)
    is_there, is_gone = re.escape(keys[0]), rf"\A(?!.*{re.escape(keys[0])})"
    delete = f"--alter {entity} --delete-config {','.join(keys)}"
    return (
        row(f"configs {name} alter", _alter(entity, config), is_exact=True),
        row(f"configs {name} describe", f"--describe {entity}", until=is_there),
        row(f"configs {name} delete", delete, is_exact=True, until="Completed updating"),
        row(f"configs {name} describe then", f"--describe {entity}", until=is_gone),
    )


OF_TOPIC = "--entity-type topics --entity-name t"
OF_IP, OF_ANY_IP = "--entity-type ips --entity-name 127.0.0.9", "--entity-type ips --entity-default"
OF_BROKER = "--entity-type brokers --entity-name 2"  # no controller in Kafka's cluster
CONFIGS = of_tool(
    "ConfigCommand",
    *_entity("topic", OF_TOPIC, "retention.ms=100000,max.message.bytes=2000000"),
    row("configs topic all", f"--describe {OF_TOPIC} --all"),
    row("configs topic bad value", _alter(OF_TOPIC, "retention.ms=x")),
    row("configs topic unknown key", _alter(OF_TOPIC, "no.such.key=1")),
    row("configs topic unknown", _alter("--entity-type topics --entity-name no", "retention.ms=1")),
    row("configs topic delete what is not set", f"--alter {OF_TOPIC} --delete-config flush.ms"),
    row("configs broker all", f"--describe {OF_BROKER} --all"),
    *_entity("broker", OF_BROKER, "log.retention.ms=100000"),
    row("configs broker read only", _alter(OF_BROKER, "node.id=7")),
    *_entity("broker default", "--entity-type brokers --entity-default", "log.cleaner.threads=2"),
    row(
        "configs broker loggers",
        "--describe --entity-type broker-loggers --entity-name 1",
        forms=(
            (r"^(?!root=)[\w.-]+=", "A LOGGER="),
            (r"(?<==)(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)(?= )", "A LEVEL"),
        ),
    ),
    row(
        "configs broker logger alter",
        _alter("--entity-type broker-loggers --entity-name 1", "root=ERROR"),
    ),
    *_entity("group", "--entity-type groups --entity-name g", "consumer.session.timeout.ms=50000"),
    *_entity("client-metrics", "--entity-type client-metrics --entity-name m", "interval.ms=9000"),
    *_entity("quota user", "--entity-type users --entity-name u", "producer_byte_rate=1000"),
    *_entity("quota client", "--entity-type clients --entity-name c", "consumer_byte_rate=1000"),
    *_entity(
        "quota both",
        "--entity-type users --entity-name u --entity-type clients --entity-name c",
        "request_percentage=50",
    ),
    *_entity("quota default", "--entity-type users --entity-default", "producer_byte_rate=9000"),
    *_entity("quota ip", OF_IP, "connection_creation_rate=9"),
    *_entity("quota ip default", OF_ANY_IP, "connection_creation_rate=9000"),
    row("configs quota ip bad", _alter(OF_IP, "connection_creation_rate=-1")),
    row("configs quota ip rate", _alter(OF_IP, "producer_byte_rate=9")),
    row(
        "configs quota ip of a user",
        _alter(f"{OF_IP} --entity-type users --entity-name u", "connection_creation_rate=9"),
    ),
    row(
        "configs quota no ip",
        _alter("--entity-type ips --entity-name 1.2.3.4.5", "connection_creation_rate=9"),
    ),
    row("configs quota unknown", _alter("--entity-type users --entity-name u", "no.such.key=1")),
    *_entity(
        "scram",
        "--entity-type users --entity-name u",
        "SCRAM-SHA-256=[iterations=4096,password=secret]",
    ),
)

_PERFORMANCE = (
    "--topic t --num-records 90 --record-size 100 --throughput -1 "
    "--command-property bootstrap.servers={bootstrap}"
)
_VERIFIABLE = "--topic t --max-messages 30 --reset-policy earliest --group-id"
RECORDS = (
    # Keys, so that each partition has records, and always as many: later offsets depend on that.
    *of_tool(
        "VerifiableProducer",
        row("verifiable-producer", "--topic t --max-messages 60 --repeating-keys 20"),
    ),
    *of_tool("ConsoleProducer", row("console-producer", "--topic t", "one\ntwo\nthree\n")),
    *of_tool(
        "consumer.ConsoleConsumer",
        row(
            "console-consumer",
            "--topic t --from-beginning --max-messages 63 --group g "
            "--command-property group.protocol=classic",
        ),
    ),
    *of_tool(
        "VerifiableConsumer",
        row("verifiable-consumer classic", f"{_VERIFIABLE} v-classic"),
        row("verifiable-consumer consumer protocol", f"{_VERIFIABLE} v --group-protocol consumer"),
        row(
            "verifiable-consumer assignor",
            f"{_VERIFIABLE} v-2 --group-protocol consumer --group-remote-assignor range",
        ),
        row(
            "verifiable-consumer unknown assignor",
            f"{_VERIFIABLE} v-3 --group-protocol consumer --group-remote-assignor nope",
        ),
        row(
            "verifiable-consumer static member",
            f"{_VERIFIABLE} v-4 --group-instance-id i",
        ),
    ),
    *of_tool(
        "ProducerPerformance",
        row("producer-perf", _PERFORMANCE, server=""),
        row(
            "producer-perf transactional",
            f"{_PERFORMANCE} --transactional-id perf --transaction-duration-ms 50",
            server="",
        ),
    ),
    *of_tool(
        "ConsumerPerformance", row("consumer-perf", "--topic t --num-records 60 --group perf")
    ),
    *of_tool(
        "EndToEndLatency",
        row("e2e-latency", "--topic t --num-records 20 --producer-acks all --record-size 10"),
    ),
)

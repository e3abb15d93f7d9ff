"""A broker without network and logs, with real metadata, codecs and request handlers."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from oncelog.coordinator.controller.quorum import Quorum, QuorumVoter
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import (
    Command,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    UnfenceBroker,
    encode_command,
)
from oncelog.coordinator.metadata.config_checks import (
    refuse_invalid_configs,
    with_refusals,
)
from oncelog.coordinator.metadata.results import Result
from oncelog.deploy.faults.protocol_proxy.bodies import decode_answer_body
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.config.dynamic import config_validators
from oncelog.node.config.listeners import Listener, parse_listeners
from oncelog.node.handlers.api_table import control_plane_apis
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.partitions.awaited_leaders import AwaitedLeaders
from oncelog.node.services import BrokerServices
from oncelog.runtime.steps import run_to_end
from oncelog.runtime.turn_share import TurnShare
from oncelog.storage.topic_configs import parse_topic_configs
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import control

CLUSTER_ID = "b25jZWxvZy10ZXN0LWlk00"
CORRELATION_ID = 77
PRODUCE, FETCH = 0, 1
CLOSED = "closed"


def broker_config(node_id: int = 1, voters: str = "1,2,3", **settings: str) -> BrokerConfig:
    """Return a broker's configuration. In names of keys, underscores stand for dots."""
    return BrokerConfig.from_properties(
        {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{9090 + node_id}",
            "log.dirs": "/tmp",
            "oncelog.voters": voters,
            "oncelog.peer.directory": "/tmp/peers",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def plain_listener(port: int = 0) -> tuple[Listener, ...]:
    """Return a PLAINTEXT listener on loopback, on a free port by default."""
    return parse_listeners([f"PLAINTEXT://127.0.0.1:{port}"], [], ["PLAINTEXT:PLAINTEXT"])


class Hosted(list[Any]):
    """A stand-in for the replica manager, which is only a list of partitions."""

    stalled: frozenset[Any] = frozenset()
    awaited = AwaitedLeaders(lambda: 0)


class FakeController:
    """A controller that applies commands immediately, or fails or waits as the test sets."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.index = 0
        self.commands: list[Command] = []
        self.failure: Exception | None = None
        self.delay_s = 0.0
        self.gate: asyncio.Event | None = None  # the next command waits for this event
        self.next_id = 1000

    def apply(self, command: Command) -> Result:
        self.index += 1
        return self.state.apply(encode_command(command), self.index)

    async def submit(self, command: Command, *, timeout_ms: int) -> Result:
        self.commands.append(command)
        if self.gate is not None:
            gate, self.gate = self.gate, None
            await gate.wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        judges = config_validators(broker_config(), parse_topic_configs)
        allowed, refused = run_to_end(refuse_invalid_configs(self.state, command, judges))
        return run_to_end(with_refusals(command, self.apply(allowed), refused))

    async def catch_up(self, deadline_ms: int) -> None:
        pass

    async def describe_quorum(self, *, timeout_ms: int) -> Quorum:
        if self.failure is not None:
            raise self.failure
        return Quorum(1, 7, 40, tuple(QuorumVoter(node, 41, 5, 5) for node in (1, 2, 3)))

    async def next_producer_id(self, broker_epoch: int, *, timeout_ms: int) -> int:
        if self.failure is not None:
            raise self.failure
        self.next_id += 1
        return self.next_id


class FakeGroup:
    """A metadata group that is led by node 1."""

    leader_id: int | None = 1


class FakeBroker:
    """Broker 1 of a cluster with the live brokers 1 to `count`."""

    def __init__(self, count: int = 3, **settings: str) -> None:
        self.state = ClusterState()
        self.controller = FakeController(self.state)
        config = broker_config(1, "1,2,3" if count == 3 else "1", **settings)
        self.controller.apply(SetClusterId(CLUSTER_ID, config.cluster_defaults))
        for node in range(1, count + 1):
            self.start_broker(node)
        self.group = FakeGroup()
        self.hosted = Hosted()
        self.services = BrokerServices(
            config=config,
            state=self.state,
            controller=self.controller,  # type: ignore[arg-type]
            metadata_group=self.group,  # type: ignore[arg-type]
            replicas=self.hosted,  # type: ignore[arg-type]
        )
        log = logging.getLogger("oncelog.test")
        self.dispatcher = Dispatcher(control_plane_apis(log), log)
        self.context = RequestContext(
            self.services, connection_id=1, peer_host="127.0.0.1", table=self.dispatcher.table
        )

    def start_broker(
        self, node: int, endpoints: tuple[tuple[str, str, int, int], ...] = ()
    ) -> None:
        incarnation = bytes([node, len(endpoints)]) * 8
        registration = RegisterBroker(
            node, incarnation, "boot", "127.0.0.1", 9090 + node, endpoints=endpoints
        )
        self.controller.apply(registration)
        self.unfence(node)

    def fence(self, node: int) -> None:
        self.controller.apply(FenceBroker(node, self.state.brokers[node].broker_epoch))

    def unfence(self, node: int) -> None:
        self.controller.apply(UnfenceBroker(node, self.state.brokers[node].broker_epoch))

    def ask(self, api_key: int, version: int, values: Mapping[str, Any] | None = None) -> Any:
        """Handle a request in a new event loop, and return the decoded answer."""
        return asyncio.run(self.answer(api_key, version, values))

    async def answer(
        self, api_key: int, version: int, values: Mapping[str, Any] | None = None
    ) -> Any:
        """Handle a request in the running event loop, and return the decoded answer."""
        return await self.request(api_key, version, values).value()

    def request(
        self, api_key: int, version: int, values: Mapping[str, Any] | None = None
    ) -> "Answer":
        return request(self.dispatcher, self.context, api_key, version, values or {})

    def create(self, name: str, partitions: int = 2, factor: int = 3, **configs: str) -> bytes:
        """Create a topic by CreateTopics, and return its id."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
        }
        (created,) = self.ask(19, 7, {"topics": [topic], "timeout": 1000}).topics
        assert created.error_code == 0, created.error_message
        return created.topic_id


def request(
    dispatcher: Dispatcher,
    context: RequestContext,
    api_key: int,
    version: int,
    values: Mapping[str, Any] | bytes,
    client_id: str = "test",
) -> "Answer":
    """Dispatch a request with these fields, or with an encoded body, and return its Answer."""
    body = values
    if not isinstance(body, bytes):
        body = control.encode_request(api_key, version, body)
    frame = encode_request_header(api_key, version, CORRELATION_ID, client_id) + body
    view = memoryview(bytearray(frame))
    return Answer(api_key, version, dispatcher.dispatch(context, dispatcher.find(view), view))


class Answer:
    """The answer to a request, which may still be pending."""

    def __init__(self, api_key: int, version: int, outcome: Any) -> None:
        self._api_key, self._version = api_key, version
        self.outcome = outcome

    @property
    def is_there(self) -> bool:
        return not isinstance(self.outcome, PendingAnswer) or self.outcome.is_done

    def abandon(self, share: TurnShare | None = None) -> None:
        assert isinstance(self.outcome, PendingAnswer)
        self.outcome.abandon(share)

    async def value(self, timeout_s: float = 10) -> Any:
        """Wait for the answer, and return it decoded.

        Returns CLOSED if the connection was closed, and None if the request has no answer.
        """
        outcome = self.outcome
        if isinstance(outcome, PendingAnswer):
            if not outcome.is_done:
                done = asyncio.Event()
                outcome.notify(done.set)
                async with asyncio.timeout(timeout_s):
                    await done.wait()
            if outcome.close_reason is not None:
                return CLOSED
            outcome = outcome.buffers
        if outcome is None:
            return None
        data = memoryview(b"".join(outcome))
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        assert int.from_bytes(data[4:8], "big") == CORRELATION_ID
        return decode_answer_body(self._api_key, self._version, data[4:])

    async def partitions(self) -> list[Any]:
        """Return the partitions in an answer about one topic."""
        (topic,) = (await self.value()).topics
        return topic.partitions

    async def errors(self) -> dict[int, int]:
        """Return the error codes of a Produce response by partition."""
        value = await self.value()
        return {p.index: p.error_code for topic in value.topics for p in topic.partitions}

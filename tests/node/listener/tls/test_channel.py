"""Test the TLS channel of the server against OpenSSL's client, without sockets."""

import ssl

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.node.listener.tls.channel import RECORDS_AT_ONCE, SLICE_BYTES, NotTls, TlsChannel

from .certificates import Certificates


class Peer:
    """The client's end of a TLS channel, without a socket."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def handshake(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        data = b""
        try:
            while part := self.tls.read(1 << 20):
                data += part
        except ssl.SSLWantReadError:
            pass
        return data


def connected(certificates: Certificates) -> tuple[TlsChannel, Peer]:
    channel = TlsChannel(certificates.credentials().context)
    peer = Peer(certificates.client())
    is_done = False
    while not is_done or not channel.is_established:
        is_done = is_done or peer.handshake()
        channel.receive(peer.outgoing.read())
        if not channel.is_established:
            channel.shake_hands()
        peer.incoming.write(channel.outgoing())
    return channel, peer


def everything(channel: TlsChannel, room: int = 1 << 20) -> bytes:
    data, buffer = b"", memoryview(bytearray(room))
    while (count := channel.read_into(buffer)) or channel.has_more:
        data += buffer[:count]
    return data


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.binary(max_size=40_000), max_size=5),
    st.integers(1, 70_000),
    st.integers(1, 20_000),
)
def test_tls_channel_reads_messages_in_pieces_of_any_size(
    certificates: Certificates, messages: list[bytes], piece: int, room: int
) -> None:
    channel, peer = connected(certificates)
    for message in messages:
        peer.tls.write(message)
    sent = peer.outgoing.read()
    found = b""
    for start in range(0, len(sent), piece):
        channel.receive(sent[start : start + piece])
        found += everything(channel, room)
    assert found == b"".join(messages)
    assert not channel.unread_bytes and not channel.has_ended


@pytest.mark.parametrize("piece", [1, 4, 5, 6, 27, 65_536])
def test_tls_channel_reads_few_records_at_once_however_small(
    certificates: Certificates, piece: int
) -> None:
    channel, peer = connected(certificates)
    for number in range(1_000):
        peer.tls.write(bytes([number % 256]))
    sent, found, most = peer.outgoing.read(), b"", 0
    buffer = memoryview(bytearray(SLICE_BYTES))
    for start in range(0, len(sent), piece):
        channel.receive(sent[start : start + piece])
        while (count := channel.read_into(buffer)) or channel.has_more:
            found, most = found + buffer[:count], max(most, count)
    assert found == bytes(number % 256 for number in range(1_000))
    assert most <= RECORDS_AT_ONCE and not channel.unread_bytes


def test_tls_channel_after_large_messages_keeps_memory_of_few_records(
    certificates: Certificates,
) -> None:
    """The buffers of OpenSSL keep the size of the most bytes that they have held."""
    large, sent = memoryview(bytes(SLICE_BYTES)), list[tuple[TlsChannel, bytes]]()
    for _ in range(100):
        channel, peer = connected(certificates)
        parts: list[bytes] = []
        for start in range(0, SLICE_BYTES, 16_384):
            peer.tls.write(large[start : start + 16_384])
            parts.append(peer.outgoing.read())
        sent.append((channel, b"".join(parts)))
    before = psutil.Process().memory_info().rss
    for channel, data in sent:
        channel.receive(data)
        assert len(everything(channel, SLICE_BYTES)) == SLICE_BYTES
        assert len(channel.encrypt(large)) > SLICE_BYTES
    assert psutil.Process().memory_info().rss - before < len(sent) * SLICE_BYTES


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3 * SLICE_BYTES), max_size=6))
def test_tls_channel_sends_queued_buffers_in_slices_and_in_order(
    certificates: Certificates, sizes: list[int]
) -> None:
    channel, peer = connected(certificates)
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    channel.queue(buffers)
    assert channel.unsent_bytes == sum(sizes)
    found = b""
    while before := channel.unsent_bytes:
        encrypted = channel.encrypt(channel.next_slice())
        assert 0 < before - channel.unsent_bytes <= SLICE_BYTES
        assert len(encrypted) < SLICE_BYTES + 1024
        peer.incoming.write(encrypted)
        found += peer.read()
    assert found == b"".join(buffers)


def test_tls_channel_joins_short_buffers_to_one_record(certificates: Certificates) -> None:
    channel, _ = connected(certificates)
    channel.queue([b"a", b"", b"bc", b"d" * 100])
    encrypted = channel.encrypt(channel.next_slice())
    assert channel.unsent_bytes == 0
    assert len(encrypted) < 103 + 40


def test_tls_close_of_the_client_leaves_the_other_direction_open(
    certificates: Certificates,
) -> None:
    channel, peer = connected(certificates)
    peer.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    channel.receive(peer.outgoing.read())
    assert everything(channel) == b"last"
    assert channel.has_ended
    channel.queue([b"answer"])
    peer.incoming.write(channel.encrypt(channel.next_slice()))
    peer.incoming.write(channel.end())
    assert peer.outgoing.pending == 0


def test_plaintext_is_recognized_by_its_first_byte(certificates: Certificates) -> None:
    channel = TlsChannel(certificates.credentials().context)
    channel.receive(b"")
    with pytest.raises(NotTls):
        channel.receive(b"\0\0\0\x10")


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300), st.integers(0, 200))
def test_tls_malformed_handshake_raises_only_tls_errors(
    certificates: Certificates, noise: bytes, position: int
) -> None:
    channel = TlsChannel(certificates.credentials().context)
    peer = Peer(certificates.client())
    peer.handshake()
    hello = bytearray(peer.outgoing.read())
    hello[position : position + len(noise)] = noise
    try:
        channel.receive(bytes(hello))
        channel.shake_hands()
    except (ssl.SSLError, NotTls):
        pass
    assert not channel.is_established


def test_tls_record_before_a_malformed_record_is_read(certificates: Certificates) -> None:
    channel, peer = connected(certificates)
    peer.tls.write(b"good")
    channel.receive(peer.outgoing.read())
    peer.tls.write(b"bad")
    broken = bytearray(peer.outgoing.read())
    broken[-1] ^= 1
    channel.receive(bytes(broken))
    buffer = memoryview(bytearray(100))
    assert channel.read_into(buffer) == 4
    with pytest.raises(ssl.SSLError):
        channel.read_into(buffer)

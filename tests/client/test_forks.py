"""Test that clients raise an error in a forked child of the process that created them."""

import sys

import pytest

from ..programs import run_to_end

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")

PARENT = """
import asyncio, os, signal, sys
from oncelog.client import Admin, BlockingAdmin, BlockingConsumer
from oncelog.client import BlockingProducer, Consumer, Producer
NOWHERE = "127.0.0.1:1"

def tried(name, call):
    try:
        call()
    except Exception as problem:
        print(name, type(problem).__name__, "after the fork" in str(problem), flush=True)
    else:
        print(name, "went on", flush=True)

def in_child(work):
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        work()
        sys.exit(0)
    print("child ended", os.waitpid(pid, 0)[1], flush=True)
"""
BLOCKING = """
producer, consumer = BlockingProducer(NOWHERE), BlockingConsumer(NOWHERE)
admin = BlockingAdmin(NOWHERE)
consumer.assign({("t", 0): 0})

def work():
    tried("send", lambda: producer.send("t", b"child"))
    tried("send_many", lambda: producer.send_many("t", [b"child"]))
    tried("flush", producer.flush)
    tried("poll", lambda: consumer.poll(0))
    tried("describe", lambda: admin.describe_cluster())
    for each in (producer, consumer, admin):
        tried("close", each.close)

in_child(work)
tried("the parent's poll", lambda: consumer.poll(0))
for each in (producer, consumer, admin):
    each.close()
"""
ASYNC = """
async def use():
    producer, consumer, admin = Producer(NOWHERE, max_block_ms=1), Consumer(NOWHERE), Admin(NOWHERE)
    consumer.assign({("t", 0): 0})
    await consumer.poll(50)
    for call in (lambda: producer.send("t", b"x"), lambda: admin.create_topic("t")):
        try:
            await asyncio.wait_for(call(), 0.2)
        except Exception:
            pass
    return producer, consumer, admin

producer, consumer, admin = asyncio.run(use())
unused = Consumer(NOWHERE)
unused.assign({("t", 0): 0})

def work():
    tried("send", lambda: asyncio.run(producer.send("t", b"x")))
    tried("send_many", lambda: asyncio.run(producer.send_many("t", [b"x"])))
    tried("flush", lambda: asyncio.run(producer.flush()))
    tried("poll", lambda: asyncio.run(consumer.poll(0)))
    tried("create", lambda: asyncio.run(admin.create_topic("t")))
    for each in (producer, consumer, admin):
        tried("close", lambda: asyncio.run(each.close()))
    tried("unused", lambda: asyncio.run(unused.poll(0)))

in_child(work)
"""


def lines(program: str) -> list[str]:
    done = run_to_end([sys.executable, "-c", PARENT + program])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_blocking_clients_raise_in_a_forked_child_and_continue_in_the_parent() -> None:
    assert lines(BLOCKING) == [
        *[f"{name} ClientClosed True" for name in ("send", "send_many", "flush", "poll")],
        "describe ClientClosed True",
        *["close went on"] * 3,
        "child ended 0",
        "the parent's poll went on",
    ]


def test_async_clients_in_use_raise_in_a_forked_child() -> None:
    assert lines(ASYNC) == [
        *[f"{name} ClientClosed True" for name in ("send", "send_many", "flush", "poll")],
        "create ClientClosed True",
        *["close went on"] * 3,
        "unused went on",
        "child ended 0",
    ]

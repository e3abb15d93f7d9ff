"""Test that the one sentence for a user is found in nested exceptions of Spark."""

import pytest

from oncelog.client import Admin
from oncelog.pipeline.failure_words import LENGTH_MAX, sentence_of
from oncelog.pipeline.sink.checks import check_brokers
from oncelog.pipeline.sink.stop_words import SinkStopped

from ..interop.client_peers import PREPARES

TRACE = "Traceback (most recent call last):\n"
TASK = (
    "An error occurred while calling o1.count.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0\n"
    f"org.apache.spark.api.python.PythonException: {TRACE}"
    '  File "worker.py", line 1, in main\n    process()\n'
    "oncelog.wire.errors.CorruptMessage: /a/0.log at byte 0: the batch fails its checksum\n\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n"
)
WITH_CAUSE = (
    f'Return Message: {TRACE}  File "a.py", line 1\nKeyError: 1\n\n'
    "During handling of the above exception, another exception occurred:\n\n"
    f'{TRACE}  File "b.py", line 1\nmy.own.Trouble\n'
)
NO_SOURCE = (
    f'{TRACE}  File "options.py"\nx.OptionError: startingOffsets is wrong\n\n'
    "During handling of the above exception, another exception occurred:\n\n"
    f"{TRACE}  File \"runner.py\"\nUnboundLocalError: cannot access local variable 'reader' where\n"
)
STOPPED = f'{TRACE}  File "a.py"\nx.SinkStopped: Say so.\n{TRACE}  File "b.py"\nOSError: later\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TASK, "CorruptMessage: /a/0.log at byte 0: the batch fails its checksum"),
        (WITH_CAUSE, "Trouble"),
        (NO_SOURCE, "OptionError: startingOffsets is wrong"),
        (STOPPED, "SinkStopped: Say so."),
        ("\nThere is no topic a.b: make it.\nmore", "There is no topic a.b: make it."),
        ("", "RuntimeError"),
        (TRACE, TRACE.strip()),
        ("x" * 2_000, "x" * LENGTH_MAX),
    ],
)
def test_spark_failure_of_each_kind_is_reduced_to_one_line(text: str, sentence: str) -> None:
    assert sentence_of(RuntimeError(text)) == sentence


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka as it comes")
async def test_broker_settings_for_prepared_mode_missing_on_a_kafka_are_named_with_their_broker(
    kafka_as_it_comes: str,
) -> None:
    async with Admin(kafka_as_it_comes) as admin:
        with pytest.raises(SinkStopped) as stopped:
            await check_brokers(admin, 60_000, "transaction_timeout_ms", needs_prepared=True)
    for missing in PREPARES:
        assert f"{missing}=true on broker 1" in str(stopped.value)

"""Test Java's string hash, by which a shard is chosen, against values computed by a JVM."""

import pytest

from oncelog.coordinator.sharding import java_string_hash, shard_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("Aa", 2112),
        ("BB", 2112),
        ("my-transactional-id", -959806496),
        ("héllo", 103094734),
        ("日本", 835047),
        ("\U0001f600", 1772899),  # two UTF-16 code units
    ],
)
def test_java_string_hash_equals_that_of_java(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_coordinator_shard_is_the_absolute_hash_modulo_the_count() -> None:
    assert shard_for("hello", 50) == 99162322 % 50
    assert shard_for("polygenelubricants", 50) == 0
    assert shard_for("my-transactional-id", 4) == 959806496 % 4

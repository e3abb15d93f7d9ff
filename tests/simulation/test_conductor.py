"""Test the condition under which the conductor may wipe a machine."""

from types import SimpleNamespace
from typing import Any

import pytest

from .conductor import Conductor


def node(**ends: int) -> Any:
    """Return a node that hosts these topics with the given log end offsets."""
    hosted = {
        (topic, 0): SimpleNamespace(topic=topic, index=0, log=SimpleNamespace(log_end_offset=end))
        for topic, end in ends.items()
    }

    class Replicas:
        def __iter__(self) -> Any:
            return iter(hosted.values())

        def get(self, topic: str, index: int) -> Any:
            return hosted.get((topic, index))

    return SimpleNamespace(broker=SimpleNamespace(replicas=Replicas()))


@pytest.mark.parametrize(
    ("others", "has_everything"),
    [
        ([{"a": 5, "b": 2}, {"a": 7}], True),
        ([{"a": 5, "b": 2}, {"a": 4}], False),  # in sync, and yet without this one's records
        ([{"a": 5, "b": 1}, {"a": 5}], False),
    ],
)
def test_simulated_machine_is_wiped_only_if_all_others_have_its_records(
    monkeypatch: pytest.MonkeyPatch, others: list[dict[str, int]], has_everything: bool
) -> None:
    """A record that only the wiped machine has may still be committed by its fetch in flight."""
    lost = node(a=5, b=2)
    conductor = Conductor.__new__(Conductor)
    cluster: Any = SimpleNamespace(
        nodes=dict(enumerate([lost, *(node(**each) for each in others)]))
    )
    conductor.cluster = cluster
    monkeypatch.setattr(conductor, "is_whole", lambda: True)
    assert conductor._others_have_everything(lost) is has_everything
    monkeypatch.setattr(conductor, "is_whole", lambda: False)
    assert not conductor._others_have_everything(lost)

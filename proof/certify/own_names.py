"""The names of a run on an existing cluster, for its group and topics, and their deletion.

Everything that a run creates on the cluster has the run's name in its own name, including the
changelogs of frameworks. Therefore it can be found afterwards.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ...client.blocking import BlockingAdmin
from ...deploy.cluster.blocking_admin import blocking_admin
from ...wire.errors import GroupIdNotFound, KafkaError, NonEmptyGroup, UnknownTopicOrPartition
from ...wire.printable import printable

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
NAME_LENGTH_MAX = 60  # changelogs of frameworks are longer, and a topic has at most 249
EMPTY_WITHIN_S, AGAIN_S = 50.0, 0.5  # killed members leave when their session ends
Say = Callable[[str], None]


def run_name(recipe: str, seed: int) -> str:
    """Return a unique name for a run, which is valid as the name of a topic or group."""
    plain = NOT_IN_NAMES.sub("-", recipe)[:NAME_LENGTH_MAX].strip("-.") or "recipe"
    return f"{plain}-{seed}-{secrets.token_hex(3)}"


@contextmanager
def deleted_behind(bootstrap: str | None, name: str, say: Say) -> Iterator[None]:
    """With `bootstrap`, delete groups and topics with `name` in their names after the block."""
    try:
        yield
    finally:
        if bootstrap is not None:
            say(_deleted(bootstrap, name))


def _deleted(bootstrap: str, name: str) -> str:
    """Return a sentence about the deleted and the remaining groups and topics."""
    try:
        with blocking_admin(bootstrap) as admin:
            groups = [g.group_id for g in admin.groups.list_groups() if name in g.group_id]
            staying = [group for group in groups if not _is_deleted(admin, group)]
            topics = sorted({p.topic for p in admin.describe_topics(None) if name in p.topic})
            outcomes = admin.delete_topics_each(topics) if topics else {}
    except (KafkaError, OSError) as problem:
        return f"groups and topics with {name!r} in their names may stay: {printable(str(problem))}"
    staying += [
        topic
        for topic, problem in outcomes.items()
        if problem is not None and not isinstance(problem, UnknownTopicOrPartition)
    ]
    told = f"deleted: {_quoted(each for each in [*groups, *topics] if each not in staying)}"
    return f"{told}; cannot be deleted: {_quoted(staying)}" if staying else told


def _is_deleted(admin: BlockingAdmin, group: str) -> bool:
    deadline = time.monotonic() + EMPTY_WITHIN_S
    while True:
        try:
            admin.groups.delete(group)
            return True
        except GroupIdNotFound:
            return True
        except NonEmptyGroup:
            if time.monotonic() > deadline:
                return False
            time.sleep(AGAIN_S)
        except KafkaError:
            return False


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{printable(name)}'" for name in names) or "nothing"

"""Test topic names, patterns and configurations as arguments of `oncelog topic`."""

from collections.abc import Iterator

import pytest

from oncelog.cli.groups import target
from oncelog.cli.main import run
from oncelog.cli.topics import chosen_topics, split_words
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.targets import parse

THERE = ["__consumer_offsets", "orders", "orders-eu", "orders.us", "ordersXus"]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["orders"], ["orders"]),
        (["nosuch"], ["nosuch"]),
        (["orders.us"], ["orders.us"]),
        (["orders.*"], ["orders", "orders-eu", "orders.us", "ordersXus"]),
        ([r"orders\.us"], ["orders.us"]),
        (["(orders|nosuch)"], ["orders"]),
        (["orders", "orders-.*", "orders"], ["orders", "orders-eu"]),
        ([".*offsets"], None),
        (["__.*"], ["__consumer_offsets"]),
        (["*"], None),
        (["x+"], None),
    ],
)
def test_topic_pattern_matches_only_whole_names(names: list[str], chosen: list[str] | None) -> None:
    if chosen is not None:
        assert chosen_topics(names, THERE) == chosen
        return
    with pytest.raises(Failure, match=r"matches|neither"):
        chosen_topics(names, THERE)


def test_topic_arguments_are_split_into_names_set_configs_and_appended_configs() -> None:
    words = ["a", "retention.ms=5", "b", "+cleanup.policy=compact", "a"]
    assert split_words(words) == (["a", "b"], {"retention.ms": "5"}, {"cleanup.policy": "compact"})
    with pytest.raises(Failure, match="key=value"):
        split_words(["=5"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["create"], ["create", "a=b"], ["create", "t", "+cleanup.policy=compact"], ["alter"],
        ["alter", "t"], ["describe"], ["delete"],
    ],
)  # fmt: skip
def test_topic_command_with_wrong_arguments_is_refused_with_exit_code_2(arguments, capsys) -> None:
    assert run(["topic", *arguments, "--bootstrap", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("oncelog: ")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        yield running


@pytest.mark.cluster
def test_topic_commands_with_many_names_create_alter_and_delete_each_named_topic(
    cluster: Cluster, capsys
) -> None:
    def told(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(["topic", *arguments, "--data", str(cluster.data)]) == code
        found = capsys.readouterr()
        return found.out + found.err

    two = ("m-1", "m-2", "--partitions", "2", "retention.ms=60000", "--replication-factor", "1")
    assert "would create topic m-2" in told("create", *two, "--dry-run")
    assert "m-1" not in told("list")
    assert "created topic m-1\ncreated topic m-2" in told("create", *two)
    again = told("create", "m-2", "m-3", code=1)
    assert "m-2: " in again and "created topic m-3" in again
    assert told("describe", "m-[12]").count("retention.ms=60000") == 2
    adding = ("m-[12]", "+cleanup.policy=compact", "retention.ms=70000")
    assert "would alter topic m-1" in told("alter", *adding, "--dry-run")
    assert "compact" not in told("describe", "m-1")
    assert "altered topic m-2" in told("alter", *adding)
    described = told("describe", "m-1")
    assert "cleanup.policy=delete,compact" in described and "retention.ms=70000" in described
    assert "not LIST" in told("alter", "m-1", "+retention.ms=5", code=1)
    assert "would delete m-1, m-2, m-3" in told("delete", "m-.*", "--dry-run")
    assert "m-1" in told("list")
    assert "deleted m-1\ndeleted m-2\ndeleted m-3" in told("delete", "m-.*")
    assert "No topic matches" in told("delete", "m-.*", code=1)


@pytest.mark.parametrize("words_of", [parse, target])
def test_option_with_a_superscript_digit_is_refused_as_not_a_number(words_of) -> None:
    with pytest.raises(Failure, match="'²' is n"):
        words_of("²")

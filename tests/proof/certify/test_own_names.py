"""Test that a run on an existing cluster uses its own names, and deletes them at its end."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.cli import main as cli
from oncelog.client import BlockingConsumer, BlockingProducer
from oncelog.client.blocking import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.certify.own_names import deleted_behind, run_name
from oncelog.proof.certify.recipe import RECIPES, all_recipes

CODE = {".py", ".js", ".java"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=1) as running:
        yield running


@pytest.mark.parametrize("recipe", ["mine", "a b", "\x1b[31mred", "x" * 300, "…", ".."])
def test_run_name_fits_topics_groups_and_terminals_and_is_new_each_time(recipe: str) -> None:
    names = {run_name(recipe, 7) for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{4,90}", name) for name in names)


def test_certify_programs_do_not_contain_the_fixed_name_invoicing() -> None:
    for recipe in all_recipes():
        program = "".join(f.read_text() for f in recipe.folder.iterdir() if f.suffix in CODE)
        assert not re.search(r"""["'`]invoicing["'`-]""", program), recipe.name


@pytest.mark.cluster
def test_certify_run_deletes_its_groups_and_topics_and_no_others(cluster: Cluster) -> None:
    name, said = run_name("mine", 1), list[str]()
    servers = cluster.bootstrap
    with deleted_behind(servers, name, said.append), BlockingAdmin(servers) as admin:
        for topic in (f"{name}-in", f"changelog__{name}--orders", "of-others"):
            admin.create_topic(topic, partitions=1, replication_factor=1)
        for group in (name, f"{name}-readers", "group-of-others"):
            with BlockingProducer(servers) as producer:
                producer.send(f"{name}-in", b"1")
            with BlockingConsumer(servers, group_id=group, auto_offset_reset="earliest") as reader:
                reader.subscribe([f"{name}-in"])
                while not reader.poll(200):
                    pass
                reader.commit()
    with BlockingAdmin(servers) as admin:
        assert {g.group_id for g in admin.groups.list_groups()} == {"group-of-others"}
        assert {p.topic for p in admin.describe_topics(None)} >= {"of-others"}
        assert not any(name in p.topic for p in admin.describe_topics(None))
    (line,) = said
    assert f"'changelog__{name}--orders'" in line and "cannot" not in line


@pytest.mark.cluster
def test_certify_deletion_on_an_unreachable_cluster_prints_a_message_and_raises_nothing(
    cluster: Cluster,
) -> None:
    said: list[str] = []
    with deleted_behind("127.0.0.1:1", "mine-1-abcdef", said.append):
        pass
    assert "'mine-1-abcdef'" in said[0] and "may stay" in said[0]


@pytest.mark.cluster
@pytest.mark.chaos
def test_certify_on_an_existing_cluster_leaves_no_topic_or_group(
    cluster: Cluster, tmp_path: Path, capsys
) -> None:
    folder = Path(shutil.copytree(RECIPES / "oncelog-transactional", tmp_path / "my recipe"))
    out = tmp_path / "out"
    command = ["certify", str(folder), "--seeds", "1:2", "--seconds", "4", "--out", str(out)]
    assert cli.run([*command, "--bootstrap", cluster.bootstrap]) == 0, capsys.readouterr().err
    assert "deleted: 'my-recipe-1-" in capsys.readouterr().err
    assert len(json.loads((out / "verdict.json").read_text())["runs"]) == 2
    with BlockingAdmin(cluster.bootstrap) as admin:
        assert not admin.groups.list_groups()
        assert not [p for p in admin.describe_topics(None) if "my-recipe" in p.topic]

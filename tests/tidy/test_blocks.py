"""Test that each fenced block of README and docs runs in a test, or has a reason not to."""

import ast
import re
from pathlib import Path

import pytest

from ..docs.blocks import PAGES, blocks_of

ROOT = Path(__file__).resolve().parents[2]
Key = tuple[str, str]  # a page, and a text that one of its blocks has

ELSEWHERE: dict[Key, str] = {
    ("README.md", "'.[test]'"): "tests/tidy/test_docs.py::"
    "test_readme_has_the_test_command_of_the_build",
    ("README.md", ".venv/bin/oncelog demo"): "tests/proof/demo/test_run.py::"
    "test_demo_of_three_seeds_with_spark_is_exactly_once",
    ("docs/certified.md", "$ oncelog certify\n"): "tests/proof/certify/test_certifying.py::"
    "test_certify_of_our_own_recipe_keeps_its_promise",
    ("docs/certified.md", 'system = "Quix Streams"'): "tests/proof/certify/test_recipe.py::"
    "test_certify_recipe_of_each_name_is_complete_and_cites_its_promise",
    ("docs/certified.md", 'promise = "exactly once"'): "tests/proof/certify/test_recipe.py::"
    "test_certify_recipe_of_each_name_is_complete_and_cites_its_promise",
    ("docs/certified.md", "[second_reading]"): "tests/proof/certify/test_recipe.py::"
    "test_review_by_a_second_reader_is_ignored_after_a_change_of_the_program",
    ("docs/conformance.md", "--against OTHER:PORT"): "tests/proof/conformance/test_clusters.py::"
    "test_conformance_of_a_cluster_with_itself_has_no_difference",
    ("docs/conformance.md", "--bootstrap OURS"): "tests/proof/conformance/test_recorded.py::"
    "test_conformance_of_apache_kafka_equals_its_record_and_ours_conforms",
    ("docs/databases.md", "import sqlite3, sys"): "tests/client/dual_write/test_writers.py::"
    "test_dual_write_service_in_the_docs_runs_as_shown",
    ("docs/databases.md", "--resolver postgresql://"): "tests/client/dual_write/test_check_back.py",
    ("docs/databases.md", "CheckBackTask("): "tests/client/dual_write/test_check_back_task.py::"
    "test_check_back_task_ends_an_open_transaction",
    ("docs/databases.md", "async_session(work)"): "tests/client/adapters/test_sqlalchemy.py::"
    "test_sqlalchemy_asyncio_block_cancelled_in_a_session_commits_neither_rows_nor_events",
    ("docs/databases.md", "adapters.asyncpg"): "tests/client/adapters/test_asyncpg.py::"
    "test_asyncpg_program_in_the_docs_runs_as_shown",
    ("docs/databases.md", "settings.configure("): "tests/client/adapters/test_django.py::"
    "test_django_program_in_the_docs_runs_as_shown",
    ("docs/databases.md", "bank-0 to bank-7"): "tests/client/writer_pool/test_pools.py::"
    "test_pool_runs_as_many_blocks_at_once_as_it_has_writers",
    ("docs/databases.md", "oncelog demo --job transfers"): "tests/proof/demo/transfers",
    ("docs/groups.md", 'group_protocol="consumer"'):
    "tests/interop/our_client/test_consumer_protocol.py",
    ("docs/install.md", "pip wheel"): "tests/pipeline/test_installed.py",
    ("docs/install.md", "FROM python"): "tests/tidy/test_install.py::"
    "test_install_page_dockerfile_has_only_known_instructions",
    ("docs/install.md", "runs-on:"): "tests/tidy/test_install.py::"
    "test_install_page_workflow_is_valid_yaml_with_jobs_and_steps",
    ("docs/inject.md", "oncelog inject --api EndTxn"): "tests/cli/test_inject.py::"
    "test_inject_with_exit_when_done_exits_after_its_fault",
    ("docs/inject.md", "oncelog observe --bootstrap"): "tests/prove/test_observe.py",
    ("docs/records.md", "--encode avro"): "tests/cli/records/test_registry.py::"
    "test_consume_of_a_value_encoded_by_produce_prints_that_value",
    ("docs/security.md", "oncelog acl add --allow User:bob"): "tests/cli/security/"
    "test_acl_commands.py::test_acl_commands_of_the_security_page_add_and_remove_the_acls_shown",
    ("docs/security.md", "oncelog up --secure"): "tests/deploy/cluster/secured/"
    "test_secured_cluster.py::test_command_line_logs_in_as_admin_and_prints_passwords_only_on_request",
    ("docs/security.md", "refused User:alice"): "tests/node/security/test_refusals.py::"
    "test_refused_request_is_logged_with_the_acl_that_would_allow_it",
    ("docs/spark-reference.md", "KAFKA_CA_FILE"): "tests/pipeline/test_secured.py::"
    "test_secured_program_of_the_docs_runs_with_the_permissions_listed_there",
    ("docs/spark-reference.md", "newest_by_key"): "tests/pipeline/sink/test_repair.py::"
    "test_torn_batch_is_completed_by_the_documented_recipe",
    ("docs/spark-reference.md", "spark-submit --master spark://10.0.0.9:7077 invoices.py"):
    "tests/pipeline/test_readme.py::test_readme_spark_program_runs_unchanged_on_a_spark_cluster",
    ("docs/spark-reference.md", "spark-class"): "tests/pipeline/test_readme.py::"
    "test_readme_spark_program_runs_unchanged_on_a_spark_cluster",
    ("docs/spark-reference.md", "--archives environment.tgz"): "tests/pipeline/test_readme.py::"
    "test_spark_executors_without_packages_use_a_packed_environment",
    ("docs/spark.md", "oncelog.pipeline.jobs.flights"): "tests/pipeline/jobs/test_flights.py",
    ("docs/spark.md", "query invoices: batch 17"): "tests/pipeline/progress/test_listener.py",
    ("docs/testing.md", "test_every_order_counts_once"): "tests/proof/pytest_plugin/test_plugin.py"
    "::test_plugin_example_of_the_page_runs_as_shown",
    ("docs/testing.md", "python -m pytest -q test_orders.py"):
    "tests/proof/pytest_plugin/test_plugin.py::test_plugin_example_of_the_page_runs_as_shown",
}  # fmt: skip
NOT_RUN: dict[Key, str] = {
    ("docs/ARCHITECTURE.md", "any Kafka client"): "a drawing",
    ("docs/ARCHITECTURE.md", "Fetch(offset 7)"): "a drawing",
    ("docs/ARCHITECTURE.md", "AddPartitions, Produce"): "a drawing",
    ("docs/internals.md", "DIR/cluster.json"): "a list of files",
    ("docs/certified.md", "./quixstreams --seeds 1 "): "minutes, and packages of others",
    ("docs/chaos.md", "--seconds 2700"): "45 minutes",
    ("docs/chaos.md", "RUN/run.json"): "a list of files",
    ("docs/measuring.md", "tests.pipeline.measured_speed kafka"): "minutes on a quiet machine",
    ("docs/measuring.md", "load 0.4"): "figures of one machine",
    ("docs/measuring.md", "load 1.5"): "figures of one machine",
}


def run_in_docs() -> set[Key]:
    """Return the (page, text) of the blocks that tests/docs runs.

    A test there names a block in a call or a table.
    """
    found: set[Key] = set()
    for file in (ROOT / "tests/docs").glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            parts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            match parts[:2]:
                case [ast.Constant(value=str(page)), ast.Constant(value=str(has))]:
                    if page in PAGES:
                        found.add((page, has))
                case _:
                    pass
    return found


def test_docs_code_block_is_run_by_a_test_or_has_a_reason_not_to_run() -> None:
    keys = [*run_in_docs(), *ELSEWHERE, *NOT_RUN]
    left = {
        f"{page}: {block.text.splitlines()[0]}"
        for page in PAGES
        for block in blocks_of(page)
        if not any(page == where and has in block.text for where, has in keys)
    }
    assert left == set(), "run them in tests/docs, or name here where they run, or why not"


@pytest.mark.parametrize("key", [*ELSEWHERE, *NOT_RUN], ids=lambda key: f"{key[0]} {key[1]}")
def test_docs_code_block_named_in_the_list_exists_once(key: Key) -> None:
    page, has = key
    assert sum(has in block.text for block in blocks_of(page)) == 1


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_docs_code_block_list_names_only_existing_tests(where: str) -> None:
    path, _, name = where.partition("::")
    assert (ROOT / path).exists()
    assert not name or re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8"))

"""Test blocks that run longer than 20 seconds or start Spark. They run with `-m chaos` only."""

import re
import shutil
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from .blocks import ROOT, Step, block
from .shell import Done, run, wrong_in

pytestmark = [pytest.mark.chaos, pytest.mark.cluster, pytest.mark.xdist_group("docs")]
PROGRAMS = ROOT / "tests/proof/prove/programs"
LONG_S = 1200


def proved(folder: Path, steps: list[Step]) -> list[Done]:
    for file in PROGRAMS.glob("*.py"):
        shutil.copy(file, folder)
    shutil.copy(PROGRAMS / "transactional.py", folder / "invoices.py")
    return run(steps, folder, timeout_s=LONG_S)


@pytest.mark.parametrize(
    ("page", "has"),
    [
        ("README.md", "python at_least_once.py"),
        ("docs/prove.md", "python at_least_once.py"),
        ("docs/prove.md", "python commits_first.py"),
        ("docs/prove.md", "python unfenced.py"),
        ("docs/prove.md", "-- python transactional.py"),
    ],
)
def test_prove_command_on_a_page_gives_the_verdict_shown(
    tmp_path: Path, page: str, has: str
) -> None:
    """The faults hit different requests in each run, so only the verdict is compared."""
    (step,) = block(page, has).steps()
    (done,) = proved(tmp_path, [step])
    verdict = re.match(r"[A-Z ]+", step.shown[-1])
    assert verdict and done.lines[-1].startswith(verdict[0]), done.lines


def test_prove_page_first_command_and_pytest_example_pass_a_correct_application(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_invoices.py").write_text(block("docs/prove.md", "import oncelog").text)
    asks = block("docs/prove.md", "--instances 2 --seconds 20").steps()
    done = proved(tmp_path, [*asks, Step("python -m pytest -q test_invoices.py")])
    assert wrong_in(done) == {}


def test_measuring_page_benchmark_prints_the_rows_shown(tmp_path: Path) -> None:
    steps = block("docs/measuring.md", "oncelog bench replication").steps()
    (done,) = run(steps[1:], tmp_path, timeout_s=LONG_S)  # after the installation
    assert re.findall(r"^ +\d+ +\w+", "\n".join(done.lines), re.MULTILINE) == re.findall(
        r"^ +\d+ +\w+", "\n".join(steps[1].shown), re.MULTILINE
    )


def test_chaos_page_commands_judge_replay_and_report_a_run(tmp_path: Path) -> None:
    steps = block("docs/chaos.md", "oncelog chaos replay RUN").steps()
    steps = [each for each in steps if each.command != "oncelog ui RUN"]  # it never ends
    assert len(steps) == 4
    assert wrong_in(run(steps, tmp_path, timeout_s=LONG_S)) == {}
    there = {path.name for path in (tmp_path / "RUN").iterdir()}
    assert {"run.json", "history", "nodes", "workers", "report.html"} <= there


def test_simulation_page_commands_print_the_output_shown() -> None:
    many = ("--seeds 0:160", "--seeds 0:30")  # minutes; `-m soak` runs thousands
    steps = block("docs/simulation.md", "--seed 7 --logs").steps()
    few = [step for step in steps if not any(each in step.command for each in many)]
    assert len(few) == len(steps) - 2
    assert wrong_in(run(few, ROOT, timeout_s=LONG_S)) == {}


def test_testing_page_clock_example_fences_a_slow_writer(tmp_path: Path) -> None:
    helpers = block("docs/testing.md", "def writer_of").text.split("@pytest.mark.oncelog", 1)[0]
    fenced = block("docs/testing.md", '@pytest.mark.oncelog(clock="controlled")').text
    (tmp_path / "test_clock.py").write_text(f"{helpers}{fenced}")
    assert wrong_in(run([Step("python -m pytest -q test_clock.py")], tmp_path)) == {}


def test_readme_spark_query_killed_midway_writes_each_order_once(folder: Path) -> None:
    (folder / "invoices.py").write_text(block("README.md", "from oncelog.pipeline import").text)
    steps = block("README.md", "python invoices.py &").steps()
    more = {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = run(steps, folder, timeout_s=LONG_S, more=more)
    counts = [
        [line for line in each.lines if line.isdigit()]
        for each in done
        if "consume" in each.step.command
    ]
    assert [done[0].code, done[1].lines[-1]] == [0, "100000 records acknowledged"]
    assert counts[1:] == [["100000"], ["100000"]], [each.lines for each in done]
    assert 0 < int(counts[0][0]) < 100_000


def test_audit_page_commands_check_topics_and_logs_as_shown(folder: Path) -> None:
    with Cluster(3, data=folder / ".oncelog") as cluster:
        bootstrap = cluster.bootstrap
        (folder / "client.properties").write_text(f"bootstrap.servers={bootstrap}\n")
        made = "oncelog topic create orders prices --partitions 1 && seq 9 | oncelog produce orders"
        logs = {f"/data/{name}": f".oncelog/node-{at}" for at, name in enumerate("abc", 1)}
        asked = block("docs/audit.md", "--logs 1=/data/a", {"HOST:PORT": bootstrap, **logs}).steps()
        more = {"SPARK_LOCAL_IP": "127.0.0.1"}
        done = run([Step(made), *asked[:2]], folder, timeout_s=LONG_S, more=more)
    done += run(asked[2:], folder, timeout_s=LONG_S, more=more)
    assert wrong_in(done) == {}


def test_spark_page_examples_run_one_after_another(running: Cluster) -> None:
    folder = running.data.parent
    here = {"127.0.0.1:9092": running.bootstrap}
    data = {"/data/": f"{folder}/"}
    own = {'"enriched"': '"own"', '"flights.enriched"': '"flights.own"'}
    watched = {
        "/var/lib/node_exporter": str(folder),
        '"invoices", ...)': f'"invoices", sink_id="watched", bootstrap="{running.bootstrap}", '
        f'topic="flights.watched", checkpoint="{folder}/watched", '
        'trigger={"availableNow": True})\n'
        "query.awaitTermination()",
        "lag_of(": "lag = lag_of(",
    }
    pieces = [
        block("docs/spark.md", 'spark_session("enrich")').text,
        block("docs/spark.md", '.option("subscribe", "flights")', here).text,
        'rows = invoices = flights.selectExpr("value")',
        block("docs/spark.md", "names this output for as long as it lives", here | data).text,
        "query.processAllAvailable(); query.stop()",
        "from oncelog.pipeline import ExactlyOnceSink",
        block(
            "docs/spark-reference.md", "def each_batch(frame, batch_id)", here | data | own
        ).text.replace(f"{folder}/enriched-checkpoint", f"{folder}/own-checkpoint"),
        "query.processAllAvailable(); query.stop()",
        block("docs/spark.md", "import lag_of, watch", watched).text,
        "assert lag == 0",
        block("docs/spark.md", "spark.metrics.namespace").text,
    ]
    (folder / "pieces.py").write_text("\n".join(pieces), encoding="utf-8")
    topics = "flights flights.enriched flights.own flights.watched"
    made = f"oncelog topic create {topics} --partitions 1"
    steps = [Step(made), Step("seq 100 | oncelog produce flights"), Step("python pieces.py")]
    steps += [Step(f"oncelog consume {topic} --template %v") for topic in topics.split()]
    done = run(steps, folder, timeout_s=LONG_S, more={"SPARK_LOCAL_IP": "127.0.0.1"})
    assert wrong_in(done) == {}
    counts = [sum(line.strip() != "" for line in each.lines) for each in done[3:]]
    assert counts == [101] * 4  # with the line that counts them
    assert "oncelog_spark_rows_written_total" in (folder / "invoices.prom").read_text()

"""Test the transfers demo on real nodes, with few faults, and with ten seeds by -m chaos."""

import pytest

from oncelog.cli.main import run as cli
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.postgres_server import why_there_is_none
from oncelog.proof.demo.transfers import report as transfers_report
from oncelog.proof.demo.transfers.broken import WRITERS
from oncelog.proof.demo.transfers.faults import OF_SERVICES
from oncelog.proof.demo.transfers.run import TransfersDemo, TransfersReport, database_of

pytestmark = [pytest.mark.cluster]
BROKEN = [name for name in WRITERS if name != "none"]
URLS = [
    None,
    pytest.param(
        "postgresql://",
        marks=pytest.mark.skipif(bool(why_there_is_none()), reason=why_there_is_none()),
    ),
]


def run(
    seed: int,
    broken: str,
    url: str | None = None,
    *,
    kinds: tuple[str, ...] | None = None,
    seconds: float = 60.0,
) -> TransfersReport:
    with Cluster(3) as cluster, database_of(url, cluster) as (database, server):
        demo = TransfersDemo(cluster, seed, broken, print, database=database, server=server)
        report = demo.run(seconds, kinds=kinds)
    assert not cluster.data.exists(), "a run that was judged leaves nothing behind"
    transfers_report.print_verdict(report)
    return report


@pytest.mark.in_turn
def test_transfers_demo_with_killed_and_paused_services_has_an_event_for_every_row() -> None:
    report = run(3, "none", kinds=("decided", "sleeper"))
    assert report.exit_code == 0 and not report.findings
    assert report.verdict.rows == report.verdict.distinct > 20
    assert transfers_report.as_json(report)["verdict"] == "ok"
    assert "EXACTLY ONCE" in transfers_report.sentence(report)


@pytest.mark.chaos
def test_transfers_demo_that_completes_events_before_the_commit_reports_events_without_row() -> (
    None
):
    report = run(3, "complete-before-commit", kinds=("prepared",))
    assert "without row" in {finding.name for finding in report.findings}
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--break", "no-nonce"], "belong to --job transfers"),
        (["--database", "postgresql://"], "belong to --job transfers"),
        (["--job", "transfers", "--break", "acks=1"], "decision-before-prepare"),
        (["--job", "transfers", "--seconds", "0"], "--seconds 1 to"),
        (["--job", "transfers", "--database", "mysql://me:hush@db/x"], "give postgresql://"),
        (["--job", "transfers", "--database", "postgresql://me:hush@127.0.0.1:1/x"], "reached"),
    ],
)
def test_transfers_demo_with_invalid_options_is_refused(
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "")
    assert cli(["demo", *options]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert words in said and "hush" not in said


@pytest.mark.chaos
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("seed", range(10))
def test_transfers_demo_of_ten_seeds_is_exactly_once(seed: int, url: str | None) -> None:
    report = run(seed, "none", url)
    assert report.exit_code == 0 and report.verdict.rows >= 1_000


@pytest.mark.chaos
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("seed", range(5))
def test_transfers_demo_without_a_safeguard_shows_violations(seed: int, broken: str) -> None:
    report = run(seed, broken, kinds=OF_SERVICES)
    assert report.exit_code == 1
    found = {finding.name for finding in report.findings}
    assert found & {"without event", "without row"}, "a busy machine alone holds readers up"

"""Test `prove` with faults of certificates, logins and ACLs, on right and wrong applications."""

import json
import sys
from pathlib import Path

import pytest

from oncelog.deploy.faults.schedule import NEED_LOGINS

from ...programs import CLI, run_to_end
from ...prove.gallery.entries import ENTRIES
from ...prove.gallery.runner import run_one
from ...secret_watch import SecretWatch

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.filterwarnings("ignore")]
PROGRAM = Path(__file__).parents[1] / "prove" / "programs" / "transactional.py"


def made(out: Path) -> list[str]:
    faults = json.loads((out / "outcome.json").read_text())["faults"]
    return [fault["name"] for fault in faults if fault["is_made"] and fault["met"]]


@pytest.mark.parametrize("fault", sorted(NEED_LOGINS))
@pytest.mark.parametrize("name", ["oncelog-right", "confluent-right"])
def test_right_application_is_exactly_once_with_each_fault_of_secured_clusters(
    name: str, fault: str, tmp_path: Path
) -> None:
    out = tmp_path / "kept"
    cell = run_one(
        ENTRIES[name], 1, tmp_path, out, faults=fault, secure=True, start_timeout_s=120.0
    )
    assert cell.is_as_expected, cell
    assert made(out) == [fault]


def test_application_that_skips_unauthorized_records_is_reported_to_lose_records(
    tmp_path: Path,
) -> None:
    entry = ENTRIES["confluent-refused-is-skipped"]
    cell = run_one(entry, 1, tmp_path, faults="acl-taken", secure=True, start_timeout_s=120.0)
    assert cell.is_as_expected and cell.is_named, cell


def test_prove_on_a_secured_cluster_makes_its_secured_faults_and_leaks_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, out = tmp_path / "temporary", tmp_path / "kept"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))  # for the cluster of the run
    with SecretWatch(tmp_path):
        done = run_to_end(
            [
                *CLI, "prove", "--secure", "--seconds", "60", "--seed", "3", "--start", "120",
                "--keep", str(out), "--", sys.executable, str(PROGRAM),
            ],
            500,
        )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "EXACTLY ONCE" in done.stdout
    assert set(made(out)) >= {"certificate-expires", "password-change", "acl-taken"}
    lines = (out / "application" / "instance-1.librdkafka.properties").read_text().splitlines()
    password = dict(line.split("=", 1) for line in lines)["sasl.password"]
    assert password not in done.stdout + done.stderr

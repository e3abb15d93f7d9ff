"""Test the files of a secured cluster after an interrupted write."""

import json
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.security.properties_file import parse_properties
from oncelog.deploy.cluster.private import make_private_directory, write_private
from oncelog.deploy.cluster.secured import files
from oncelog.deploy.cluster.secured.files import properties_text


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "passwords.json"])
def test_secured_cluster_file_left_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def cut_off(path: Path, text: str) -> None:
        is_cut = path.name.startswith(name)
        write_private(path, text[: len(text) // 2] if is_cut else text)
        if is_cut:
            raise InterruptedError

    make_private_directory(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(files, "write_private", cut_off)
        files.prepare(tmp_path, "127.0.0.1:9092")

    files.prepare(tmp_path, "127.0.0.1:9092")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls" / "node.pem")
    context.load_verify_locations(tmp_path / "tls" / "ca.pem")
    assert set(json.loads((tmp_path / "tls" / "passwords.json").read_text())) == set(files.USERS)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*"))


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_client_properties_with_special_characters_are_read_as_written(value: str) -> None:
    text = properties_text({"sasl.password": value, "other": "x"})
    assert parse_properties(text) == {"sasl.password": value, "other": "x"}

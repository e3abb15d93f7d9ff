"""Test that a process gets a bootstrap address or a client file, never a password."""

from pathlib import Path

from oncelog.deploy.cluster.secured.connection import client_config, connection_options


def test_bootstrap_line_of_a_plaintext_cluster_is_its_whole_client_configuration() -> None:
    line = "127.0.0.1:1,127.0.0.1:2"
    assert client_config(line) == {"bootstrap.servers": line}
    assert connection_options(line) == ["--bootstrap", line]


def test_client_config_of_a_path_reads_the_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "admin.librdkafka.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nsasl.password=a=b\n")
    assert client_config(str(file)) == {
        "bootstrap.servers": "127.0.0.1:1",
        "sasl.password": "a=b",
    }
    assert connection_options(str(file)) == ["--command-config", str(file)]

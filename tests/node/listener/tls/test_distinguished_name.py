"""Test that the subject of a certificate is formatted as by Java's X500Principal.getName."""

import pytest

from oncelog.node.listener.tls.distinguished_name import distinguished_name


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ([[("commonName", "alice")]], "CN=alice"),
        (
            [[("countryName", "DE")], [("organizationName", "Ex")], [("commonName", "alice")]],
            "CN=alice,O=Ex,C=DE",
        ),
        ([[("commonName", "a"), ("userId", "b")]], "CN=a+UID=b"),
        ([[("commonName", 'a,b+"c"\\<d>;e')]], 'CN=a\\,b\\+\\"c\\"\\\\\\<d\\>\\;e'),
        ([[("commonName", " a ")]], "CN=\\ a\\ "),
        ([[("commonName", "#a")]], "CN=\\#a"),
        ([[("emailAddress", "a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[("serialNumber", "x" * 200)]], "2.5.4.5=#1381c8" + "78" * 200),
        ([], ""),
    ],
)
def test_tls_subject_is_formatted_like_java_does(
    subject: list[list[tuple[str, str]]], name: str
) -> None:
    assert distinguished_name(subject) == name

"""The subject of a certificate in Java's format (RFC 2253), for mapping rules and ACLs of Kafka."""

from collections.abc import Iterable

Subject = Iterable[Iterable[tuple[str, str]]]  # as returned by `ssl.SSLSocket.getpeercert`

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}
_IDENTIFIERS = {  # attributes without a keyword in RFC 2253, with their identifier and string tag
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
}
_SPECIAL = ',+"\\<>;'


def distinguished_name(subject: Subject) -> str:
    """Return the name with its last part first, such as `CN=alice,OU=dev,O=example`."""
    return ",".join(
        "+".join(_attribute(name, value) for name, value in part)
        for part in reversed([list(part) for part in subject])
    )


def _attribute(name: str, value: str) -> str:
    if name in _KEYWORDS:
        return f"{_KEYWORDS[name]}={_escaped(value)}"
    identifier, tag = _IDENTIFIERS.get(name, (name, 0x0C))
    data = value.encode()
    return f"{identifier}=#{bytes((tag, *_length(len(data)))).hex()}{data.hex()}"


def _length(count: int) -> bytes:
    """Return a length in DER, as one byte or as a count of bytes and these bytes."""
    if count < 0x80:
        return bytes((count,))
    digits = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(digits),)) + digits


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text

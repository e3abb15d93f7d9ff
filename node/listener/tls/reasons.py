"""The reason of a failed handshake, as a sentence for the broker's log."""

import ssl

NOT_TLS = (
    "it does not speak TLS, and this listener does: the client's security.protocol must be SSL "
    "or SASL_SSL"
)
NOT_PLAIN = (
    "it speaks TLS, and this listener does not: the client's security.protocol must be PLAINTEXT "
    "or SASL_PLAINTEXT"
)
_SENTENCES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client gave no certificate, which ssl.client.auth=required asks for"
    ),
    "ALERT_UNKNOWN_CA": "the client does not trust the CA of this broker's certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate",
    "ALERT_BAD_CERTIFICATE": (
        "the client refuses this broker's certificate: it is not of the host that it asked for"
    ),
    "ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "the client has no cipher in common with this broker",
}


def reason_of(error: ssl.SSLError) -> str:
    """Return a sentence about a failed handshake of a client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return f"the client's certificate is not accepted: {said}"
    reason = error.reason or str(error)
    known = (sentence for word, sentence in _SENTENCES.items() if reason.endswith(word))
    return f"TLS failed: {next(known, reason)}"


def is_tls(start: bytes) -> bool:
    """Return whether bytes begin like the bytes of a TLS client."""
    return len(start) >= 2 and start[0] == 0x16 and start[1] == 0x03

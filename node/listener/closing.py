"""The errors that close a connection."""


class CloseConnection(Exception):
    """An error that closes the connection: a malformed request, or a failed acks=0 produce."""


class UnservedRequest(CloseConnection):
    """A request for an API, or for a version of one, that this broker does not serve.

    Kafka closes the connection, too: no answer has a form that its client would know.
    """

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key, self.version = api_key, version

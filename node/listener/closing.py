"""The errors that close a connection."""


class CloseConnection(Exception):
    """The error that closes a connection, for example after a malformed request."""


class UnservedRequest(CloseConnection):
    """The error of a request for an unsupported API or version.

    The connection is closed, as in Kafka, because no form of answer would be known to the client.
    """

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key, self.version = api_key, version

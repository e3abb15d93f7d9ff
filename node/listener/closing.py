"""Why a connection cannot go on."""


class CloseConnection(Exception):
    """The connection cannot go on: its bytes make no sense, or an acks=0 produce failed."""


class UnservedRequest(CloseConnection):
    """A request for an API, or for a version of one, that this broker does not serve.

    Kafka closes the connection, too: no answer has a form that its client would know.
    """

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key, self.version = api_key, version

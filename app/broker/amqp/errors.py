"""What goes wrong on an AMQP connection, drawn as a tree; `broker/rabbitmq.py` translates it at its border."""


class AmqpError(Exception):
    """The root of what this package raises."""


class AmqpUrlError(AmqpError):
    """An address cannot be used; the text says what would be right and never quotes the address."""


class FrameError(AmqpError):
    """The peer sent bytes that are not AMQP 0-9-1."""


class ConnectionLost(AmqpError):
    """The connection could not be made, was closed or broke; `code` is the peer's reply code or 0."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class ChannelLost(AmqpError):
    """The channel was closed; `code` is the peer's reply code or 0."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


NOT_FOUND = 404
PRECONDITION_FAILED = 406

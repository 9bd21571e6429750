"""Where a broker listens: reading `amqp://` and `amqps://` addresses. Never prints one, because it holds a password."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from app.broker.amqp.errors import AmqpUrlError

_OPTIONS = ("cacertfile", "certfile", "keyfile", "verify")
_SHAPE = "amqp://user:password@host:5672/vhost (amqps:// for TLS; several separated by commas)"


@dataclass(frozen=True, slots=True)
class Address:
    """One broker node and how to log in to it; `tls` is None on a plain connection."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    virtual_host: str
    tls: ssl.SSLContext | None = field(repr=False, default=None)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_addresses(urls: str) -> list[Address]:
    """Read one address or several separated by commas, which are tried in turn. Raises AmqpUrlError."""
    return [_parse(url.strip()) for url in urls.split(",")]


def _parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise AmqpUrlError(f"the broker's address has no readable host and port; expected {_SHAPE}") from None
    if parts.scheme not in ("amqp", "amqps") or not host:
        raise AmqpUrlError(f"the broker's address is not of the form {_SHAPE}")
    if parts.fragment:
        raise AmqpUrlError("the broker's address holds a '#'; write %23 where the password has one")
    secure = parts.scheme == "amqps"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise AmqpUrlError(f"the broker's address has unknown options {unknown}; known: {', '.join(_OPTIONS)}")
    if options and not secure:
        raise AmqpUrlError("the broker's address has TLS options but begins with amqp://; write amqps://")
    return Address(
        host=host,
        port=port or (5671 if secure else 5672),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        virtual_host=unquote(parts.path[1:]) or "/",
        tls=_tls(options) if secure else None,
    )


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    verify = options.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise AmqpUrlError("the option verify of the broker's address is verify_peer or verify_none")
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
        if "certfile" in options:
            context.load_cert_chain(options["certfile"], options.get("keyfile"))
    except OSError as error:
        raise AmqpUrlError(f"a certificate file of the broker's address cannot be used: {error.strerror}") from None
    if verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

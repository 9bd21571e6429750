"""Whether anything can have reached the outside system before a call failed: only a plain no counts as no.

The domain imports no client library: a class is known by the name that it or one of its bases has, together with the
package that defines it.
"""

from collections.abc import Iterator

from app.domain.errors import NotSent

# What is raised before a connection stands. A connection that was refused carries no request.
_BEFORE = frozenset(
    {
        ("builtins", "ConnectionRefusedError"),
        ("app", "AddressForbidden"),
        ("socket", "gaierror"),
        ("httpx", "ConnectError"),
        ("httpx", "ConnectTimeout"),
        ("httpx", "PoolTimeout"),
        ("httpx", "UnsupportedProtocol"),
        ("httpx", "InvalidURL"),
        ("httpcore", "ConnectError"),
        ("httpcore", "ConnectTimeout"),
        ("httpcore", "PoolTimeout"),
        ("httpcore", "UnsupportedProtocol"),
        ("aiohttp", "ClientConnectorError"),
        ("requests", "ConnectTimeout"),
        ("requests", "InvalidURL"),
        ("requests", "MissingSchema"),
        ("urllib3", "NewConnectionError"),
        ("urllib3", "ConnectTimeoutError"),
        ("urllib3", "NameResolutionError"),
    }
)
# What only wraps another error; it says nothing by itself.
_WRAPS = frozenset(
    {
        ("requests", "ConnectionError"),
        ("urllib3", "MaxRetryError"),
        ("urllib", "URLError"),
        ("builtins", "ExceptionGroup"),
        ("builtins", "BaseExceptionGroup"),
        ("openai", "APIConnectionError"),
        ("anthropic", "APIConnectionError"),
    }
)
# Shapes that errors of a connection that stood, or of an answer, have: one of them anywhere, and something may have
# been sent, as by a client that tried a second time and was refused then.
_AFTER = frozenset(
    {
        ("builtins", "TimeoutError"),
        ("builtins", "ConnectionResetError"),
        ("builtins", "ConnectionAbortedError"),
        ("builtins", "BrokenPipeError"),
        ("httpx", "ReadTimeout"),
        ("httpx", "WriteTimeout"),
        ("httpx", "ReadError"),
        ("httpx", "WriteError"),
        ("httpx", "CloseError"),
        ("httpx", "RemoteProtocolError"),
        ("httpx", "HTTPStatusError"),
        ("httpx", "TooManyRedirects"),
        ("http", "RemoteDisconnected"),
        ("requests", "ReadTimeout"),
        ("urllib3", "ReadTimeoutError"),
        ("urllib3", "ProtocolError"),
    }
)
_MOST = 50


def was_not_sent(error: BaseException) -> bool:
    """Say whether the failure proves that nothing reached the outside system.

    True for `NotSent` (with `NotAccepted`: what was refused is as good as not sent), and for a connection that was
    refused or a name that was not found, also as the cause of the error or wrapped by what is known to wrap; never when
    anything in its history may have sent something.
    """
    if isinstance(error, NotSent):
        return True
    for _, one in zip(range(_MOST), _history(error), strict=False):
        if not _before(one) and (_is_of(one, _AFTER) or getattr(one, "response", None) is not None):
            return False
    return _proves(error, 0)


def _proves(error: BaseException, depth: int) -> bool:
    if depth > _MOST:
        return False
    if isinstance(error, NotSent) or _before(error):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(_proves(member, depth + 1) for member in error.exceptions)
    cause = error.__cause__
    if cause is None and _is_of(error, _WRAPS):
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, BaseException) else error.__context__
    return cause is not None and _proves(cause, depth + 1)


def _before(error: BaseException) -> bool:
    return _is_of(error, _BEFORE)


def _history(error: BaseException) -> Iterator[BaseException]:
    """Give the error and all that it came from, except what lies behind the proof itself."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
        cause, context = one.__cause__, one.__context__
        if _before(one):
            # A timeout while connecting is told with a TimeoutError as its cause: that one is part of the proof.
            cause, context = None, context if context is not cause else None
        waiting.extend(other for other in (cause, context) if other is not None)


def _is_of(error: BaseException, names: frozenset[tuple[str, str]]) -> bool:
    return any((base.__module__.partition(".")[0], base.__name__) in names for base in type(error).__mro__)

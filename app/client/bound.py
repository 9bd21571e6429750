"""One method for both shells: it builds a request or a flow, and the shell that its object is bound to carries it out.

A builder is written once, with its parameters; `client.tasks.get` then takes them and returns a `Task` where the client
blocks, an awaitable of one where it is asynchronous, and plain JSON where answers are only shown.
"""

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from app.client.request import Flow, Json, Request, Stream
from app.client.shells import Awaiting, Blocking, Plain

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Blocking | Awaiting)


class Bound(Generic[S]):
    """Something whose calls go through a shell."""

    def __init__(self, shell: S) -> None:
        self._shell = shell


class call(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A call with one answer."""

    def __init__(self, build: Callable[Concatenate[Any, P], Request[T] | Flow[T]]) -> None:
        self._build = build
        functools.update_wrapper(self, build)  # type: ignore[arg-type]

    @overload
    def __get__(self, bound: None, owner: type) -> "call[P, T]": ...
    @overload
    def __get__(self, bound: Bound[Plain], owner: type) -> Callable[P, Json]: ...
    @overload
    def __get__(self, bound: Bound[Blocking], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, bound: Bound[Awaiting], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, bound: Any, owner: type) -> Any:
        """Bind it to an object, and through it to a shell."""
        if bound is None:
            return self

        @functools.wraps(self._build)
        def calls(*args: P.args, **kwargs: P.kwargs) -> Any:
            return bound._shell.run(self._build(bound, *args, **kwargs))

        return calls


class streaming(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A call whose answer is iterated over."""

    def __init__(self, build: Callable[Concatenate[Any, P], Stream[T]]) -> None:
        self._build = build
        functools.update_wrapper(self, build)  # type: ignore[arg-type]

    @overload
    def __get__(self, bound: None, owner: type) -> "streaming[P, T]": ...
    @overload
    def __get__(self, bound: Bound[Plain], owner: type) -> Callable[P, Iterator[Json]]: ...
    @overload
    def __get__(self, bound: Bound[Blocking], owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, bound: Bound[Awaiting], owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, bound: Any, owner: type) -> Any:
        """Bind it to an object, and through it to a shell."""
        if bound is None:
            return self

        @functools.wraps(self._build)
        def calls(*args: P.args, **kwargs: P.kwargs) -> Any:
            return bound._shell.stream(self._build(bound, *args, **kwargs))

        return calls

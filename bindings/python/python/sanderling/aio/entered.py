"""Objects that are made by awaiting."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Entered(Awaitable[T], Generic[T]):
    """What is awaited, or entered with `async with`, which closes it in the end."""

    def __init__(self, made: Awaitable[T]) -> None:
        self._made = made
        self._entered: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._made.__await__()

    async def __aenter__(self) -> T:
        self._entered = await self._made
        await self._entered.__aenter__()
        return cast(T, self._entered)

    async def __aexit__(self, *error: Any) -> None:
        await self._entered.__aexit__(*error)

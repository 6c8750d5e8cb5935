"""How models are asked: again where a fault may pass, and for whole answers where a server cannot stream."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from pydantic_ai import exceptions
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from nbtools.agent.models.answers import AnswerNotWhole

__all__ = ["RepeatedRequests", "WholeAnswers"]

_ATTEMPTS = 4
_LONGEST_WAIT_S = 60.0
_MAY_PASS = (
    exceptions.ModelRateLimitError,
    exceptions.ModelUnavailableError,
    exceptions.ModelServerError,
    exceptions.ModelConnectionError,
)
_T = TypeVar("_T")


class RepeatedRequests(WrapperModel):
    """Asks a model again, four times in all, where what went wrong may pass: too many requests, a fault of the server.

    It waits as long as the server says, or twice as long as before. A server that wants more than a minute is not
    waited for, and a stream that has begun is not asked for again: the run ends, and can be resumed.

    Parameters
    ----------
    wrapped
        The model; its own client asks once.
    wait
        Seconds before the second attempt where the server does not say.
    sleep
        Waits for seconds.
    """

    def __init__(
        self, wrapped: Model, *, wait: float = 0.5, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        super().__init__(wrapped)
        self._wait = wait
        self._sleep = sleep

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        """Ask for a whole answer."""
        return await self._repeated(lambda: self.wrapped.request(messages, model_settings, model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask for an answer piece by piece; one that breaks off raises `AnswerNotWhole` with what came of it."""
        asked = (messages, model_settings, model_request_parameters, run_context)
        async with AsyncExitStack() as stack:
            stream = await self._repeated(lambda: stack.enter_async_context(self.wrapped.request_stream(*asked)))
            try:
                yield stream
            except (exceptions.ModelAPIError, exceptions.UnexpectedModelBehavior) as exc:
                raise AnswerNotWhole("broken", stream.get(), exc) from exc

    async def _repeated(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return await ask()
            except _MAY_PASS as exc:
                wait = exc.retry_after
                if wait is None:
                    # Not all clients that were refused at the same time come again at the same time.
                    wait = self._wait * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
                if wait > _LONGEST_WAIT_S:
                    raise
            await self._sleep(wait)
        return await ask()


class WholeAnswers(WrapperModel):
    """Asks a model for its whole answer, and hands that on as if it had come piece by piece."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: Any,
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask, and hand the answer on."""
        answer = await self.wrapped.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(answer, model_request_parameters=model_request_parameters, replay_events=True)

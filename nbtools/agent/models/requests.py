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

from nbtools.agent.models.answers import error_of
from nbtools.agent.models.failures import as_error

_ATTEMPTS = 4
_LONGEST_WAIT_S = 60.0
_FAULTS = (exceptions.ModelAPIError, exceptions.UnexpectedModelBehavior)
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
    name
        What errors call the model; `None` takes its own name.
    key
        Its key, which no error may show.
    """

    def __init__(
        self,
        wrapped: Model,
        *,
        wait: float = 0.5,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        name: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(wrapped)
        self._name, self._key = name or wrapped.model_name, key
        self._wait = wait
        self._sleep = sleep

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        """Ask for a whole answer."""
        return await self._repeated(lambda: self.wrapped.request(messages, model_settings, model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask for an answer piece by piece; the error of one that breaks off has what came of it."""
        arguments = (messages, model_settings, model_request_parameters, run_context)
        async with AsyncExitStack() as stack:
            stream = await self._repeated(lambda: stack.enter_async_context(self.wrapped.request_stream(*arguments)))
            try:
                yield stream
            except _FAULTS as exc:
                raise error_of("broken", stream.get(), self._name, cause=exc, key=self._key) from exc

    async def _repeated(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await ask()
            except _FAULTS as exc:
                error, wait = as_error(exc, self._name, self._key), getattr(exc, "retry_after", None)
                if wait is None:
                    # Not all clients that were refused at the same time come again at the same time.
                    wait = self._wait * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
                # A server that asks for an hour is told to the person, who can choose another model.
                if attempt == _ATTEMPTS or wait > _LONGEST_WAIT_S or not error.retryable:
                    raise error from exc
            await self._sleep(wait)


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

"""Models that are asked for whole answers, where a server cannot stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

__all__ = ["WholeAnswers"]


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

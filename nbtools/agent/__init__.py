"""A model at work with tools: the loop, its limits, approvals, and what is kept of it.

The loop stands on pydantic-ai (extra ``agent``); nothing outside this package imports that.
"""

from nbtools.agent.past_runs import AgentHost
from nbtools.agent.records.budgets import Budgets
from nbtools.agent.run import AgentRun
from nbtools.agent.service import AgentService
from nbtools.agent.settings import RunSettings

__all__ = ["AgentHost", "AgentRun", "AgentService", "Budgets", "RunSettings"]

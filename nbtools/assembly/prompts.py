"""Prompts of workflows, answered by runs of the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.workflow.driver.host import Prompt, PromptAnswer

if TYPE_CHECKING:
    from nbtools.agent import AgentService


async def answer_prompt(agent: AgentService, prompt: Prompt) -> PromptAnswer:
    """Answer a prompt of a workflow by a run of the agent."""
    run = await agent.aask(
        prompt.text,
        prompt.executor,
        run_id=prompt.run_id,
        label=prompt.label,
        words=prompt.node.prompt,
        on_text=lambda text: prompt.show("stdout", text),
        profile=prompt.settings,
        instructions=prompt.instructions,
        output_schema=prompt.node.answer,
        budgets={name: value for name, value in (("tokens", prompt.tokens), ("usd", prompt.usd)) if value},
    )
    # Half of an answer with a schema fits no schema, so only text may be taken as far as it came.
    is_cut = run.state == "incomplete" and prompt.node.answer is None and bool(run.text)
    if is_cut and prompt.node.accept == "incomplete" and run.error is not None:
        prompt.show("stderr", f"\nincomplete: {run.error.message}\n")
    else:
        run.raise_for_error("with accept: incomplete, the node takes what there is" if is_cut else None)
    tokens = run.usage["input_tokens"] + run.usage["output_tokens"]
    return PromptAnswer(text=run.text, data=run.value, label=run.seen, tokens=tokens, usd=run.usage["usd"] or 0.0)

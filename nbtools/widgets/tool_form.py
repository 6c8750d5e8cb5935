"""A form for a tool: its arguments as fields, messages at the field, and the result below."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets

from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.texts import html_parts
from nbtools.texts.shown import RunOutputs
from nbtools.texts.visible import aligned
from nbtools.widgets.forms.fields import fields_of, problems_of, values_of
from nbtools.widgets.forms.results import cell_of, shown_result
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest
from nbtools.widgets.live.sources import module_text, style_text

if TYPE_CHECKING:
    from nbtools.contract.result import ToolResult
    from nbtools.contract.tool import Tool


class ToolForm(LiveWidget):
    """Calls a tool with what is typed into its fields.

    Parameters
    ----------
    tool
        What is called.
    call
        Calls it: name and arguments, then ``caller`` and ``on_output`` by name.
    values
        What the fields show at first.
    """

    _esm = module_text("tool_form")
    _css = style_text("cards")
    lanes: ClassVar[Mapping[str, str]] = {"run": "running"}
    about = traitlets.Unicode("").tag(sync=True)
    fields: Any = traitlets.List().tag(sync=True)
    draft: Any = traitlets.Dict().tag(sync=True)
    result: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        tool: Tool,
        call: Callable[..., Coroutine[Any, Any, ToolResult]],
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._tool = tool
        self._call = call
        self._runs = 0
        fields = fields_of(tool.schema, values)
        super().__init__(title=tool.name, about=tool.description.partition("\n\n")[0], fields=fields)

    def _checked(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        values = values_of(self._tool.schema, typed)
        self._tool.parameters.validate(values, None)
        return values

    def answer_check(self, request: ViewRequest) -> dict[str, Any]:
        """Say what is wrong with what was typed so far; what is still missing is not."""
        typed = request.args["typed"]
        try:
            self._checked(typed)
        except NbtoolsError as exc:
            problems = problems_of(exc, self._tool.schema["properties"])
            return {"problems": {name: problem for name, problem in problems.items() if name in typed}}
        return {"problems": {}}

    def answer_cell(self, request: ViewRequest) -> str:
        """Return the call as Python."""
        return cell_of(self._tool.name, values_of(self._tool.schema, request.args["typed"]))

    def answer_run(self, request: ViewRequest) -> dict[str, Any]:
        """Call the tool and show the result."""
        try:
            values = self._checked(request.args["typed"])
        except InvalidArguments as exc:
            return {"problems": problems_of(exc, self._tool.schema["properties"])}
        self._runs += 1
        name = f"output-{self._runs}"
        show = self.output_into(name, RunOutputs())
        result = self.wait_for_call(request, self._call(self._tool.name, values, caller="form", on_output=show), name)
        self.result = shown_result(result)
        problems = {} if result.ok or result.error is None else self._problems(result)
        return {"problems": problems, "result": self.result}

    def _problems(self, result: ToolResult) -> dict[str, str]:
        error = result.error
        if error is None or error.code != "INVALID_ARGUMENTS":
            return {}
        error_given = InvalidArguments(error.message, hint=error.hint, data=result.data)
        return problems_of(error_given, self._tool.schema["properties"])

    def plain_text(self) -> str:
        """Return the fields, and the result if there is one."""
        rows = [[field["name"], field["kind"], str(field["value"]), field["help"]] for field in self.fields]
        lines = [f"{self.title}: {self.about}", *aligned(rows)]
        return "\n".join([*lines, str(self.result["text"])] if self.result else lines)

    def plain_html(self) -> str:
        """Return the fields as a table, and the result."""
        rows = [[field["name"], field["value"], field["help"]] for field in self.fields]
        page = html_parts.table(("argument", "value", "meaning"), rows, title=f"{self.title}: {self.about}")
        return page + (html_parts.preformatted(str(self.result["text"])) if self.result else "")

"""The interactive options: what ``%config NBTools`` shows and changes."""

from __future__ import annotations

from traitlets import Bool, CInt, Float, TraitError, validate
from traitlets.config import Configurable


class NBTools(Configurable):
    """Options of the magics; services have their own settings, see ``%nbtools config``."""

    timeout = Float(None, allow_none=True, help="Seconds a script may take; None takes the setting.").tag(config=True)
    limit = CInt(None, allow_none=True, help="Rows a query returns; None for all.").tag(config=True)
    traceback = Bool(False, help="Show whole tracebacks instead of three lines.").tag(config=True)
    confirm = Bool(False, help="Ask before a magic deletes, overwrites or runs something.").tag(config=True)
    progress = Bool(True, help="Show elapsed time while long work runs.").tag(config=True)
    max_rows = CInt(50, help="The most rows that a list of records shows.").tag(config=True)

    @validate("timeout", "limit", "max_rows")
    def _positive(self, proposal: dict[str, object]) -> object:
        value = proposal["value"]
        if isinstance(value, int | float) and not value > 0:
            raise TraitError(f"NBTools: {value!r} is not more than 0.")
        return value

"""What a run may use, and what it has used: steps, tool calls, tokens, seconds, money."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

from nbtools.errors import ConfigInvalid, did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgets:
    """What a run may use; `None` is not a limit. A run that goes on has what was left.

    Attributes
    ----------
    steps
        Answers of the model.
    tool_calls
        Calls, those that failed or were refused among them.
    tokens
        Tokens that went in and came out.
    seconds
        Time, without the time in which someone is asked for approval.
    usd
        US dollars; only where the model has a known price.
    """

    steps: int | None = 50
    tool_calls: int | None = 200
    tokens: int | None = None
    seconds: float | None = None
    usd: float | None = None

    @classmethod
    def of(cls, limits: Budgets | Mapping[str, Any] | None) -> Budgets:
        """Return budgets from a mapping.

        Raises
        ------
        ConfigInvalid
            A name is unknown, or a value is not a number above 0.
        """
        if limits is None or isinstance(limits, Budgets):
            return limits or cls()
        names = [field.name for field in dataclasses.fields(cls)]
        for name, value in limits.items():
            if name not in names:
                hint = did_you_mean(str(name), names, f"Budgets are {', '.join(names)}.")
                raise ConfigInvalid(f"there is no budget {name!r}.", hint=hint)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < math.inf):
                raise ConfigInvalid(f"the budget of {name} is {value!r}.", hint="Give a number above 0.")
        return cls(**limits)

    def part(self, count: int, *, at_once: bool) -> Budgets:
        """Return what each of several runs may use, so that together they use no more.

        Raises
        ------
        ConfigInvalid
            A budget is too small to be divided.
        """
        parts: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if value is None or (name == "seconds" and at_once):
                continue
            parts[name] = value // count if str(field.type).startswith("int") else value / count
            if not parts[name]:
                hint = f"Give at least {count}: the budgets are those of all tries together."
                raise ConfigInvalid(f"the budget of {name} is {value}, for {count} tries.", hint=hint)
        return dataclasses.replace(self, **parts)


@dataclasses.dataclass(kw_only=True)
class Ledger:
    """What a run has used so far; it is stored with the run."""

    budgets: Budgets
    steps: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    spent_s: float = 0.0
    _since: float | None = dataclasses.field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        """Seconds that the run took, pauses left out."""
        return self.spent_s + (time.monotonic() - self._since if self._since is not None else 0.0)

    def resume_clock(self) -> None:
        """Count time from now on."""
        if self._since is None:
            self._since = time.monotonic()

    def pause_clock(self) -> None:
        """Count no time until `resume_clock`."""
        self.spent_s, self._since = self.seconds, None

    @property
    def used(self) -> dict[str, float]:
        """What was used, by the names of the budgets."""
        tokens = self.input_tokens + self.output_tokens
        money = {"usd": self.usd or 0.0}
        return {"steps": self.steps, "tool_calls": self.tool_calls, "tokens": tokens, "seconds": self.seconds, **money}

    def reached(self, *names: str) -> tuple[str, float, float] | None:
        """Return the first budget that is used up, what it allows and what was used; among `names` where given.

        Of tool calls only one that is too many uses the budget up: the model gets to read what the last one gave.
        """
        for name, used in self.used.items():
            allowed = getattr(self.budgets, name)
            spent = allowed is not None and (used > allowed if name == "tool_calls" else used >= allowed)
            if spent and (not names or name in names):
                return name, allowed, used
        return None

    def counts(self) -> dict[str, Any]:
        """Return what was used: steps, tool calls, tokens, seconds, and US dollars where the price is known."""
        counted = ("steps", "tool_calls", "input_tokens", "output_tokens", "seconds", "usd")
        return {name: getattr(self, name) for name in counted}

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as JSON values."""
        fields = self.counts()
        fields["spent_s"] = round(fields.pop("seconds"), 3)
        return {**fields, "budgets": dataclasses.asdict(self.budgets)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Ledger:
        """Return a stored ledger."""
        return cls(**{**fields, "budgets": Budgets(**fields["budgets"])})

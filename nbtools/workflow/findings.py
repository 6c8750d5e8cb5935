"""Findings: what is wrong in a workflow file, where, and how it is shown.

A `Report` holds all findings of one file and of the files that it names. It is written as text (the line and a caret),
JSON, annotations of GitHub, or SARIF 2.1.0. The codes, with a title, an explanation and an example each, stand in
``codes.yaml``; `explain` shows one.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.errors import CODES, ConfigInvalid, InvalidArguments, did_you_mean, nearest
from nbtools.texts.other_words import hint_for
from nbtools.texts.visible import harmless, width_of

_SHOWN = 110
_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FindingRule:
    """What a code means: a title, an explanation, and an example of what is wrong and right."""

    code: str
    title: str
    explanation: str
    wrong: str = ""
    right: str = ""
    level: Literal["error", "warning"] = "error"


@functools.cache
def rules() -> Mapping[str, FindingRule]:
    """Return the rule of each code."""
    import yaml

    text = Path(__file__).with_name("codes.yaml").read_text(encoding="utf-8")
    table = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    return {code: FindingRule(code=code, **fields) for code, fields in table.items()}


def explain(code: str) -> str:
    """Return the explanation of a code, with an example of what is wrong and what is right.

    Raises
    ------
    InvalidArguments
        There is no such code.
    """
    rules_by_code = rules()
    rule = rules_by_code.get(code.upper())
    if rule is None:
        close = nearest(code.upper(), [*rules_by_code, *CODES])
        named = f"Codes are {min(rules_by_code)} to {max(rules_by_code)} for files, and {', '.join(CODES)} for runs."
        hint = f"Did you mean {close}?" if close else named
        raise InvalidArguments(f"{code!r} is not a code of a finding.", hint=hint)
    parts = [f"{rule.code}: {rule.title}" + (" (a warning)" if rule.level == "warning" else ""), rule.explanation]
    parts += [
        f"{word}:\n" + "\n".join(f"    {line}".rstrip() for line in text.splitlines())
        for word, text in (("Wrong", rule.wrong), ("Right", rule.right))
        if text
    ]
    return "\n\n".join(part.strip("\n") for part in parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkflowFinding:
    """One thing that is wrong in a file.

    Attributes
    ----------
    code
        ``WF001`` and so on.
    message
        What was found.
    hint
        What is allowed, or the nearest name; empty where there is nothing to say.
    path
        The file as it was named; ``<text>`` for a text.
    line
        Line of the file, from 1.
    column
        Column of that line in characters, from 1.
    width
        How many characters of the line are marked.
    excerpt
        The line.
    """

    code: str
    message: str
    hint: str = ""
    path: str = "<text>"
    line: int = 1
    column: int = 1
    width: int = 1
    excerpt: str = dataclasses.field(default="", repr=False)

    @property
    def level(self) -> Literal["error", "warning"]:
        """Whether the file can still be run: a warning does not prevent it."""
        return rules()[self.code].level

    @property
    def summary(self) -> str:
        """The message and the hint in one line."""
        return f"{self.message} {self.hint}".strip()

    def caret(self) -> str:
        """Return the line with carets below the place; a long line is cut around it. Empty where there is no line."""
        # A tab or an escape in the line would move the carets, or the terminal.
        text = "".join(char if char.isprintable() else " " for char in self.excerpt)
        if not text.strip():
            return ""
        start = max(0, self.column - 1 - _SHOWN // 2) if len(text) > _SHOWN else 0
        line, before = text[start : start + _SHOWN], text[start : self.column - 1]
        room = max(1, min(self.width, len(line) - len(before)))
        return f"    {line.rstrip()}\n    {' ' * width_of(before)}{'^' * width_of(line[len(before) :][:room] or ' ')}"

    def __str__(self) -> str:
        """Return ``file:line:column: CODE message``, the line, and a caret."""
        return "\n".join(
            filter(None, (f"{self.path}:{self.line}:{self.column}: {self.code} {self.summary}", self.caret()))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON has it."""
        return {**dataclasses.asdict(self), "level": self.level}


def allowed(name: str, names_there: Iterable[str], what: str) -> str:
    """Return the hint for an unknown name: the nearest one, or all of them."""
    names = list(names_there)
    here = what == "Keys" and (hint_for(name, "node.") or hint_for(name))
    if here:
        return here
    if hint := did_you_mean(name, names):
        return hint
    listing = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"{what}: {listing}." if names else f"There are no {what[0].lower()}{what[1:]}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What is wrong in a workflow file and in the files that it names, in the order of their lines.

    Attributes
    ----------
    path
        The file as it was named; ``<text>`` for a text.
    findings
        Everything that was found.
    workflow
        The model of the file, a `nbtools.workflow.spec.Workflow`; `None` unless there is no error.
    files
        Every file that was read: this one first, then scripts, agents and sub-workflows.
    """

    path: str
    findings: tuple[WorkflowFinding, ...] = ()
    workflow: Any = dataclasses.field(default=None, repr=False)
    files: tuple[Path, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the workflow can be run: only warnings were found."""
        return not any(finding.level == "error" for finding in self.findings)

    def raise_for_errors(self) -> Report:
        """Return the report, or raise its errors as one.

        Raises
        ------
        ConfigInvalid
            There is one; the message shows each with its line and caret, ``data["findings"]`` holds them.
        """
        errors = [finding for finding in self.findings if finding.level == "error"]
        if errors:
            raise ConfigInvalid(
                "\n".join(map(str, errors)),
                hint=f"nbtools explain {errors[0].code} explains it.",
                tried=f"validating {self.path}",
                data={"findings": [finding.to_dict() for finding in errors]},
            )
        return self

    def to_text(self, form: str = "text") -> str:
        """Return the report as ``text``, ``json``, ``github`` or ``sarif``; empty text when nothing was found."""
        return FORMATS[form](self.findings)

    def __str__(self) -> str:
        return harmless(self.to_text())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the findings at an IPython prompt."""
        printer.text(str(self) or f"{self.path}: nothing is wrong.")


def _as_github(findings: Iterable[WorkflowFinding]) -> str:
    """Return commands of GitHub's workflow language, which show as annotations."""

    def quoted(text: str, *, is_property: bool = False) -> str:
        # The percent sign first, because it is what the others become.
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        return text.replace(":", "%3A").replace(",", "%2C") if is_property else text

    return "\n".join(
        f"::{finding.level} file={quoted(finding.path, is_property=True)},line={finding.line},col={finding.column},"
        f"endColumn={finding.column + finding.width},title={finding.code}::{quoted(finding.summary)}"
        for finding in findings
    )


def _as_sarif(findings: Iterable[WorkflowFinding]) -> str:
    listed = list(findings)
    used = sorted({one.code for one in listed})
    described = [
        {
            "id": code,
            "shortDescription": {"text": rules()[code].title},
            "fullDescription": {"text": rules()[code].explanation.strip()},
            "defaultConfiguration": {"level": rules()[code].level},
        }
        for code in used
    ]
    driver = {"name": "nbtools validate", "rules": described}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(one, used.index(one.code)) for one in listed],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _sarif_result(finding: WorkflowFinding, index: int) -> dict[str, Any]:
    from urllib.parse import quote

    path = Path(finding.path)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    region = {"startLine": finding.line, "startColumn": finding.column, "endColumn": finding.column + finding.width}
    location = {"artifactLocation": {"uri": uri}, "region": {**region, "snippet": {"text": finding.excerpt}}}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": finding.summary},
        "locations": [{"physicalLocation": location}],
    }


FORMATS: Mapping[str, Callable[[Iterable[WorkflowFinding]], str]] = {
    "text": lambda findings: "\n".join(map(str, findings)),
    "json": lambda findings: json.dumps([one.to_dict() for one in findings], indent=2, ensure_ascii=False),
    "github": _as_github,
    "sarif": _as_sarif,
}
"""The writer of each form of a report, by its name."""

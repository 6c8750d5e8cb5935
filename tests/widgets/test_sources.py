"""JavaScript as it is sent: joined from its files, without what only readers of the files need."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from nbtools.widgets.explorer import Explorer
from nbtools.widgets.live.sources import joined, module_text, part_text, without_comments

STATIC = Path(str(files("nbtools.widgets"))) / "static"
WIDGETS = [path.stem for path in sorted(STATIC.glob("*.js")) if "export default" in path.read_text(encoding="utf-8")]


def test_a_module_comes_behind_what_it_imports_and_each_once() -> None:
    modules = {
        "w.js": 'import { a } from "./p/a.js";\nimport {\n  b,\n} from "./b.js";\n\nexport default { a, b };\n',
        "p/a.js": 'import { b } from "../b.js";\n\nexport const a = b;\n',
        "b.js": "// Why.\nexport const b = 1;\n",
    }
    text = joined("w.js", modules.__getitem__)
    assert text == "const b=1;\n\nconst a=b;\n\nexport default{a,b};\n"


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ('const a = x + +y - -z / 2, b = "a = b";', 'const a=x + +y - -z / 2,b="a = b";'),
        ("const c = `${a ? b : `x = ${c}`}`;", "const c = `${a ? b : `x = ${c}`}`;"),
        ("const d = /a = b/.test(x) ? 1 : 2;", "const d = /a = b/.test(x) ? 1 : 2;"),
        ("return a ? .5 : { b, c };", "return a?.5:{b,c};"),
    ],
)
def test_what_is_sent_means_what_was_written(line: str, sent: str) -> None:
    assert joined("f.js", lambda _path: f"{line}\n") == f"{sent}\n"


@pytest.mark.parametrize("name", WIDGETS)
def test_what_is_packed_is_sent_as_what_it_was_made_of(name: str) -> None:
    def packed(path: str) -> str:
        return without_comments((STATIC / path).read_text(encoding="utf-8"))

    assert joined(f"{name}.js", packed) == module_text(name)


def test_comments_and_blanks_that_mean_nothing_are_not_sent() -> None:
    source = """/**
 * Why.
 * @param {number} x
 */
const f = (x) => {
  // A reason.
  const y = /** @type {number} */ (x); /** @type {string} */

  return `${y} // no comment  of ours`;
};
"""
    expected = "const f=(x)=>{const y=(x);\nreturn `${y} // no comment  of ours`;\n};\n"
    assert joined("f.js", lambda _path: source) == expected


def test_modules_that_import_each_other_in_a_circle_are_refused() -> None:
    modules = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(ImportError, match=r"a\.js → b\.js → a\.js"):
        joined("a.js", modules.__getitem__)


@pytest.mark.parametrize("name", WIDGETS)
def test_joined_files_have_no_name_twice_and_import_nothing(name: str) -> None:
    names: list[str] = []

    def read(path: str) -> str:
        text = STATIC.joinpath(path).read_text(encoding="utf-8")
        names.extend(re.findall(r"^(?:export )?(?:async )?(?:const|let|class|function) (\w+)", text, re.MULTILINE))
        return text

    text = joined(f"{name}.js", read)
    assert sorted(names) == sorted(set(names))
    assert re.findall(r"^(?:import|export) \w+", text, re.MULTILINE) == ["export default"]


@pytest.mark.parametrize(("name", "most"), [("table", 60_000), ("chat", 25_000), ("explorer", 60_000)])
def test_a_widget_is_few_bytes_of_javascript(name: str, most: int) -> None:
    assert len(module_text(name).encode()) < most


def test_styles_of_tables_and_those_of_other_widgets_do_not_meet() -> None:
    # A page has the rules of all its widgets: a field of one would have the width of another's.
    for path in STATIC.glob("*.css"):
        begin = r"\.grid" if path.stem in {"grid", "explorer"} else r":not\(\.grid\)"
        if path.stem != "tokens":
            assert re.findall(rf"\.nbt(?!{begin}).*", path.read_text(encoding="utf-8")) == [], path.name


def test_parts_are_handed_all_that_they_import() -> None:
    # A name that is missing there is undefined where the part runs, which no linter sees.
    scope = re.search(r"^const SCOPE = \{([^}]*)\}", (STATIC / "part.js").read_text(encoding="utf-8"), re.MULTILINE)
    assert scope is not None
    handed_over = set(re.findall(r"\w+", scope[1]))
    missing = {name: _imports(part_text(name)) - handed_over for name in Explorer.parts}
    assert not any(missing.values()), missing


def _imports(part: str) -> set[str]:
    head = re.match(r"export default\(\{([^}]*)\}\)=>", part)
    assert head is not None
    return set(re.findall(r"\w+", head[1]))

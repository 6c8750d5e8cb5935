"""What a workbench shows in a notebook that can be used by keyboard and mouse.

::

    live/            live_widget: requests and replies between a widget and its views, texts that grow, plain forms;
                     lanes: threads that answer, so that a quick request never waits for a slow one; sources: JavaScript
                     and CSS as text
    forms/           calls as people see them: fields, what a call would change, answers, results
    grid/            rows that page, sorted, filtered, with profiles
    table, explorer, memory_browser, kernel_monitor, tool_form, approval_card, chat, workflow_view
                     one widget each; none imports another
    sources_at_hand  what can be explored
    open_grids       tables and explorers that nobody can use any more are closed
    static/          shared.js (elements, theme, errors, cells), link.js (messages), tokens.css (colours, spaces), one
                     module for each widget; grid/ and explorer/ hold the parts of the two that have many

A widget is one class here and one hand-written ES module in ``static``. `live.sources.module_text` joins the module and
all that it imports into one text: nothing is built, nothing is fetched. The module gets a ``root`` by ``mount`` and a
``Link``; it asks with ``link.ask(name, details)``, which the method ``answer_NAME`` of the Python class answers in a
thread. The state of the grid is one object, ``Grid`` in ``grid/state.js``, which the other files of ``grid/`` read and
change: ``layout`` (geometry, scrolling), ``profiles``, ``filters`` (what changes the rows, menus), ``paint``, ``keys``,
``mouse``.
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest
    from nbtools.widgets.table import TableView

__all__ = ["LiveWidget", "TableView", "ViewRequest"]

__getattr__ = facade(__name__)

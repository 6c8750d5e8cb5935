"""The magics that show widgets: what they return, and the plain forms that stand beside each view."""

from __future__ import annotations


def test_each_magic_returns_its_widget_with_plain_forms(notebook, folder):
    notebook.run("%memory save goal 5 --tags plan")
    for line, name, told in (
        ("%memory browse", "MemoryBrowser", "goal"),
        ("%kernels monitor", "KernelMonitor", "no sessions yet"),
        ("%tool_form calculator", "ToolForm", "expression"),
    ):
        notebook.run(f"shown << {line}")
        widget = notebook["shown"]
        assert type(widget).__name__ == name
        bundle, _ = widget._repr_mimebundle_()
        assert told in bundle["text/plain"]
        assert told in bundle["text/html"]
        widget.close()


def test_a_form_for_a_tool_that_is_not_there_is_refused(notebook):
    done = notebook.run("%tool_form calculater")
    assert "calculator" in done.stderr + done.stdout + str(done.displayed)

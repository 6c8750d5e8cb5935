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


def test_a_box_saves_what_the_widgets_in_it_show(notebook, monkeypatch):
    notebook.run("%memory save goal 5\nimport ipywidgets\nshown = get_ipython().run_line_magic('memory', 'browse')")
    monkeypatch.setattr("IPython.get_ipython", lambda: notebook.shell)
    monkeypatch.setattr(notebook.shell, "kernel", object(), raising=False)
    view, saved = notebook.run("ipywidgets.HBox([ipywidgets.VBox([shown, shown]), ipywidgets.IntSlider()])").displayed
    assert (view["text/plain"], view["text/html"]) == ("", "")
    assert f'data-nbt-saved="{notebook["shown"].saved_as}"' in saved["text/html"]
    assert "goal" in saved["text/html"]
    # Boxes of others, and those that show themselves, are shown as before.
    assert notebook.run("ipywidgets.HBox([ipywidgets.IntSlider()])").displayed == []
    own = "class Own(ipywidgets.VBox):\n    def _ipython_display_(self): print('its own')\nOwn()"
    assert notebook.run(own).stdout.endswith("its own\n")
    notebook.run("%unload_ext nbtools")
    boxes = notebook.shell.display_formatter.ipython_display_formatter
    assert "ipywidgets.widgets.widget_box.Box" not in boxes

"""The standard toolsets, in the order in which they are shown."""

from nbtools.toolbox import data_tools, memory_files, memory_tools, session_tools, sql_tools, text_tools
from nbtools.toolbox.commands import command_tools
from nbtools.toolbox.files import file_tools
from nbtools.toolbox.scripts import script_tools
from nbtools.toolbox.web import web_tools

STANDARD = (
    memory_tools.TOOLS,
    memory_files.TOOLS,
    script_tools.TOOLS,
    session_tools.TOOLS,
    sql_tools.TOOLS,
    file_tools.TOOLS,
    data_tools.TOOLS,
    web_tools.TOOLS,
    command_tools.TOOLS,
    text_tools.TOOLS,
)
"""The toolsets, each a tuple of functions."""

"""Where the user's state lies when nobody has said it: known without the settings, which take longer to import."""

from __future__ import annotations

from pathlib import Path

__all__ = ["default_home"]


def default_home() -> Path:
    """Return the folder of the user's state when nothing else is said: the platform's user data folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("nbtools", appauthor=False))

"""Ground: loops, folders, settings and lines that every part stands on."""

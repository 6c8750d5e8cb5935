"""The file tool of Anthropic's memory protocol: virtual files in a memory, a folder or an object store."""

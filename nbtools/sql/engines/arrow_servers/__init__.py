"""Servers that answer in Arrow: Spark Connect, Flight SQL, and other drivers of ADBC."""

"""Tools for the web, and the exchange below them: addresses, requests, pages."""

"""The URLs of databases: what they hide, and where their passwords come from.

``${NAME}`` anywhere in a URL is replaced by the environment variable of that name when the connection is opened. A URL
with a user and no password asks the keyring, if there is one, for the service ``nbtools:host`` and that user. Messages
show a URL only as `mask_url` returns it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from nbtools.errors import ConfigInvalid, ConfigMissing
from nbtools.texts.redaction import conceal

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def mask_url(url: str) -> str:
    """Return a URL without its password and without other secrets in its query.

    Examples
    --------
    >>> mask_url("postgresql://me:secret@db.example/shop?sslmode=require")
    'postgresql://me:***@db.example/shop?sslmode=require'
    """
    scheme, separator, rest = url.partition("://")
    # A password may hold a slash that nobody escaped: then the account ends at the last @ of all.
    cut = rest.partition("/")[0].rfind("@")
    cut = rest.rfind("@") if cut < 0 else cut
    if separator and cut >= 0:
        user, colon, _ = rest[:cut].partition(":")
        url = f"{scheme}://{user}{':***' if colon else ''}{rest[cut:]}"
    return str(conceal(url))


def resolve_url(url: str) -> str:
    """Return a URL with its variables replaced and its password looked up.

    Raises
    ------
    ConfigMissing
        A variable that it names is not set.
    """

    def value(match: re.Match[str]) -> str:
        value_of = os.environ.get(match[1])
        if value_of is None:
            raise ConfigMissing(
                f"the connection {mask_url(url)!r} needs the environment variable {match[1]}, which is not set.",
                hint=f"Set {match[1]} before you start the notebook.",
            )
        return quote(value_of, safe="")

    return _with_keyring(_VARIABLE.sub(value, url))


def _with_keyring(url: str) -> str:
    try:
        parts = urlsplit(url)
        user, host, needs_password = parts.username, parts.hostname, parts.password is None
    except ValueError:
        raise ConfigInvalid(f"{mask_url(url)!r} is not a URL of a database.") from None
    if not (user and host and needs_password):
        return url
    password = _from_keyring(f"nbtools:{host}", unquote(user))
    if password is None:
        return url
    account, _, host_part = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}:{quote(password, safe='')}@{host_part}"))


def _from_keyring(service: str, user: str) -> str | None:
    try:
        import keyring
    except ImportError:
        return None
    try:
        password = keyring.get_password(service, user)
    except keyring.errors.KeyringError:
        return None  # no keyring service on this machine: the server will say that a password is missing
    return password if isinstance(password, str) else None


def file_of(url: str) -> Path:
    """Return the file of a URL: three slashes and a relative path, four and an absolute one."""
    _, _, rest = resolve_url(url).partition("://")
    host, slash, path = rest.partition("/")
    path = unquote(path.partition("?")[0])
    if host or not slash or not path:
        scheme = url.partition("://")[0]
        raise ConfigInvalid(
            f"{mask_url(url)!r} does not name a file.",
            hint=f"Write {scheme}:///relative/path or {scheme}:////absolute/path.",
        )
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - links stay as they are named

"""The environment a child is given: what programs need, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["scrub_environment"]

_SECRET_WORDS = (
    *("KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE"),
    *("AUTH", "PRIVATE", "DSN", "CONNECTION_STRING", "NETRC"),
)
# Doors to a running agent or service that acts with the user's rights, and what would tie the child to its owner.
_DOORS = frozenset(
    {
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "KUBECONFIG"),
        *("WAYLAND_DISPLAY", "DISPLAY", "XAUTHORITY", "SESSION_MANAGER", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"),
        *("FORCE_COLOR", "CLICOLOR_FORCE"),  # Jupyter sets them for its own kernel; a child's output is plain
        *("JPY_PARENT_PID", "JPY_SESSION_NAME", "JUPYTERHUB_SERVICE_URL", "BASH_ENV", "ENV", "PYTHONSTARTUP"),
    }
)
# They contain one of the words above and are settings that programs need.
_HARMLESS = frozenset({"TOKENIZERS_PARALLELISM", "KEYTIMEOUT", "KEYBOARD", "PYTHON_KEYRING_BACKEND", "GIT_AUTHOR_NAME"})
# Values that are secrets whatever their name: a URL with a password, well-known prefixes of keys, signed tokens.
_SECRET_VALUE = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"
    r"|^(sk|pk|rk)[-_](live|test|proj|ant|or)?[-_]?[A-Za-z0-9_-]{20,}$"
    r"|^(gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|AKIA|ASIA|AIza|ya29\.)[A-Za-z0-9_.-]{12,}"
    r"|^eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def _is_secret(name: str, value: str) -> bool:
    upper = name.upper()
    if upper in _HARMLESS:
        return False
    return upper in _DOORS or any(word in upper for word in _SECRET_WORDS) or _SECRET_VALUE.search(value) is not None


def scrub_environment(environment: Mapping[str, str], *, keep: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment without secrets, and without the doors to services that hold some.

    Dropped are names that contain KEY, SECRET, TOKEN, PASSWORD, CREDENTIAL, AUTH and the like, values that look like a
    key or hold a password in a URL, and the addresses of agents (ssh, gpg, D-Bus, Docker, display).

    Parameters
    ----------
    environment
        The variables to look through; the mapping is not changed.
    keep
        Names that stay whatever they look like.

    Examples
    --------
    >>> scrub_environment({"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "DATABASE_URL": "postgres://me:pw@host/db"})
    {'PATH': '/bin'}
    """
    kept = frozenset(keep)
    return {name: value for name, value in environment.items() if name in kept or not _is_secret(name, value)}

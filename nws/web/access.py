"""Who may ask for what: the one table of routes and scopes. A route that is not in it is closed."""

import re
from typing import Final

from nws.tokens import PROBE, READ, WRITE

PUBLIC: Final = "public"

ACCESS: Final = {
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/openapi.json"): READ,
    ("POST", "/v1/measurements"): WRITE,
    ("GET", "/v1/forecast"): READ,
    ("POST", "/v1/forecasts"): READ,
    ("GET", "/v1/weather"): READ,
    ("GET", "/v1/range"): READ,
    ("GET", "/v1/series"): READ,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/status"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/sensors"): READ,
    ("PUT", "/v1/sensors/{name}"): WRITE,
    ("DELETE", "/v1/sensors/{name}"): WRITE,
    ("GET", "/v1/cliques"): READ,
    ("GET", "/v1/cliques/{name}"): READ,
    ("GET", "/v1/probing"): PROBE,
}

_PATTERNS: Final = [
    (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), scope)
    for (method, path), scope in ACCESS.items()
    if "{" in path
]


def methods_of(path: str) -> list[str]:
    """Return the methods that a path knows, for ``Allow``."""
    methods = sorted({method for method, _ in ACCESS})
    return [method for method in methods if scope_of(method, path) is not None]


def scope_of(method: str, path: str) -> str | None:
    """Return the scope that a request needs; None if no route is meant.

    Examples
    --------
    >>> scope_of("GET", "/v1/cliques/lab"), scope_of("GET", "/etc/passwd")
    ('read', None)
    """
    exact = ACCESS.get((method, path))
    if exact is not None:
        return exact
    for known, pattern, scope in _PATTERNS:
        if known == method and pattern.fullmatch(path):
            return scope
    return None

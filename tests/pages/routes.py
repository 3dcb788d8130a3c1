"""Every route of the pages, with an address that leads to it."""

import re

ROUTES = [
    ("GET", "/"),
    ("GET", "/runs/00000000"),
    ("GET", "/runs/00000000/report.html"),
    ("GET", "/runs/00000000/log"),
    ("GET", "/runs/00000000/events"),
    ("GET", "/compare"),
    ("POST", "/runs/00000000/cancel"),
    ("POST", "/runs/00000000/resize"),
    ("POST", "/runs/00000000/migrate"),
    ("POST", "/runs/00000000/rebalance"),
    ("POST", "/runs/00000000/restart"),
    ("GET", "/cluster"),
    ("GET", "/cluster/00000000"),
    ("GET", "/cluster/00000000/events"),
    ("GET", "/cluster/00000000/what-if"),
    ("GET", "/cluster/00000000/jobs/00000000"),
    ("GET", "/cluster/00000000/hosts/00000000"),
    ("POST", "/cluster/00000000/jobs/00000000/cancel"),
    ("POST", "/cluster/00000000/jobs/00000000/resize"),
    ("POST", "/cluster/00000000/hosts/00000000/00000000"),
    ("GET", "/files"),
    ("GET", "/file"),
    ("GET", "/file/delete"),
    ("POST", "/file/delete"),
    ("POST", "/files/new"),
    ("POST", "/files/agent"),
    ("POST", "/file"),
    ("GET", "/plan"),
    ("POST", "/plan/run"),
    ("POST", "/plan/submit"),
    ("GET", "/hosts"),
    ("GET", "/hosts/00000000"),
    ("POST", "/hosts/measure"),
]


def routes_of(site):
    """The routes that the application has, but for those that need no session."""
    gate = site.server.config.app
    return {
        (method, re.sub(r"\{\w+\}", "0" * 8, route.path))
        for route in gate.application.routes
        for method in route.methods - {"HEAD"}
        if route.path not in {"/style.css", "/script.js"}
    }

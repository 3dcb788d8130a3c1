"""A weather service with its pages in a thread of this process, and a browser's part of the conversation."""

import math
import time
from contextlib import contextmanager

import requests

from apples.weather import WeatherPages
from nws import Client, Listen, Measurement, SeriesName, Serving

HTML = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
"""As browsers say it."""


def wave(name, count, ago=0.0, period=10.0):
    """Return the measurements of a series until so many seconds ago."""
    last = time.time() - ago
    series = SeriesName(*name.split("/"))
    shares = (0.5 + 0.25 * math.sin(k / 5) for k in range(count))
    return [Measurement(series, last - period * (count - k), one) for k, one in enumerate(shares)]


class WeatherSite:
    """A running service and the links that it told."""

    def __init__(self, serving, links):
        self.serving, self.links = serving, links

    @property
    def url(self):
        return self.serving.url

    def client(self):
        return Client(self.url, self.serving.token)

    def token(self, *scopes, **more):
        return self.serving.tokens.issue("-".join(scopes), scopes, **more)

    def sign_in(self, token, headers=None):
        """Return a session of `requests` that sent the form for a token, and what was answered."""
        session = requests.Session()
        session.headers.update(HTML)
        answer = session.post(f"{self.url}/enter", {"key": token}, headers=headers, timeout=60)
        return session, answer

    def visitor(self):
        """Return a session of `requests` that was admitted by the link."""
        session = requests.Session()
        session.headers.update(HTML)
        assert session.get(self.links[-1], timeout=60).status_code == 200
        return session


@contextmanager
def weather_site(directory):
    links = []
    pages = WeatherPages(links.append)
    with Serving(directory, Listen(port=0), database={"engine": "numpy"}, pages=pages.add) as one:
        pages.announce()
        yield WeatherSite(one, links)

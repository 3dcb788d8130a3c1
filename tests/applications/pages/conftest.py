"""The fixtures of served pages."""

from pages.served import file, known_streams, own_state, site, visitor  # noqa: F401 - fixtures

"""Types of the JSON documents that contain answers of a weather service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

import nws


class ForecastDocument(TypedDict):
    """``nws forecast --json`` prints this document."""

    schema: Literal["nws.forecast/1"]
    forecasts: list[nws.NetworkForecast]
    """Forecasts in the order of the request."""


class QueryDocument(nws.SeriesList):
    """``nws query --json`` prints this document."""

    form: Annotated[Literal["nws.query/1"], Field(alias="schema")]


class ExtractDocument(nws.SeriesRange):
    """``nws extract --json`` prints this document."""

    form: Annotated[Literal["nws.extract/1"], Field(alias="schema")]


class StatusDocument(nws.ServiceStatus):
    """``nws status --json`` prints this document."""

    form: Annotated[Literal["nws.status/1"], Field(alias="schema")]
    registrations: list[nws.LeaseAnswer]
    """Registered processes."""


class LatestForecast(nws.NetworkForecast):
    """A forecast and the last value."""

    latest: float
    """Value of the last measurement."""


class TopDocument(TypedDict):
    """``nws top --json`` prints this document."""

    schema: Literal["nws.top/1"]
    time: float
    """Time of the answer."""
    total: int
    """Series that match."""
    series: list[LatestForecast]
    """Forecast and last value of each series."""

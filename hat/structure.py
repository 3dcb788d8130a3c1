"""The Structure module: what the application consists of (Berman et al. 1996, Figure 12)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat.expression import Expression
from hat.fields import Choice, Count, Entry, Name, Text, Word


class Structure(Entry):
    """The class of application, the grid it works on and how often."""

    kind: Literal["regular_grid"] = Field(
        "regular_grid", description="Class of application: data parallel over a regular grid."
    )
    model: Choice = Field(
        "strip", description="Model of the Model pool that predicts it, or your own module:name."
    )
    rows: Expression | None = Field(
        None, description="Rows of the grid; the parameter grid when not given."
    )
    columns: Expression | None = Field(
        None, description="Points in a row; as many as rows when not given."
    )
    iterations: Expression | None = Field(
        None, description="Iterations; the parameter iterations, or 1, when not given."
    )


class Data(Entry):
    """One data structure: how large it is and how hosts share it."""

    name: Name = Field(description="What tasks call it.")
    element_bytes: Count = Field(8, description="Bytes of one element.")
    elements: Expression | None = Field(
        None, description="Elements in all; rows times columns when not given."
    )
    distribution: Literal["strip", "replicated"] = Field(
        "strip",
        description="strip: a host keeps its own rows and a border row on each side; "
        "replicated: every host keeps all of it.",
    )
    when: Word | None = Field(
        None,
        description="Parameter that brings it: counted only if that is set, not 0, not empty.",
    )
    description: Text = Field("", description="What it holds.")


class Task(Entry):
    """One task: what it does to which data."""

    name: Name = Field(description="What implementations and interfaces call it.")
    description: Text = Field("", description="What it does.")
    data: tuple[Name, ...] = Field((), description="Data structures it touches.")
    communication: Literal["none", "neighbours", "all"] = Field(
        "neighbours", description="Who a part of the task talks to in an iteration."
    )


class Interface(Entry):
    """What moves between two tasks on distinct hosts (Berman et al. 1996, Figure 14)."""

    sender: Name = Field(alias="from", description="Task that sends.")
    receiver: Name = Field(alias="to", description="Task that receives.")
    pattern: Literal["strip_neighbours"] = Field(
        "strip_neighbours", description="Who sends to whom: each strip to the one above and below."
    )
    size: Expression | None = Field(
        None,
        alias="bytes",
        description="Bytes per border, direction and iteration; a row of elements when not given.",
    )
    messages: Count = Field(
        1, description="Messages per border, direction and iteration that carry these bytes."
    )
    description: Text = Field("", description="What is sent.")

"""Rows whose columns are the fields of a struct."""

from __future__ import annotations

import msgspec


def insertion(table: str, kind: type[msgspec.Struct], **fixed: int) -> str:
    """Return the statement that puts a struct into a table, which takes `values_of` it; `fixed`: columns that are no fields."""
    names = kind.__struct_fields__
    values = [*("?" * len(names)), *map(str, fixed.values())]
    return f"INSERT INTO {table} ({', '.join((*names, *fixed))}) VALUES ({', '.join(values)})"


def values_of(row: msgspec.Struct) -> list[object]:
    """Return the values of all columns, truths as numbers."""
    return [int(value) if isinstance(value, bool) else value for value in msgspec.structs.astuple(row)]

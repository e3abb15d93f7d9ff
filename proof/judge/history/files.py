"""The files of a recording, with rows as they are written, and Parquet after sealing.

    RUN/history/0000/recorder.json   format, number, process id
    RUN/history/0000/names.jsonl     the strings, one JSON text a line; line n is number n
    RUN/history/0000/TABLE.rows      packed rows (schema.Table.dtype), zeros at the end
    RUN/history/0000/TABLE.parquet   the sealed rows, with names as strings, for any other tool

Sealing converts a million rows at a time, so its memory is limited. The rows are removed when the
Parquet file is complete.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .format import Array, HistoryFormat, recordings
from .schema import NONE, TABLES, Column, Table

ROWS_A_GROUP = 1 << 20
_STRINGS = pa.dictionary(pa.int32(), pa.string())


class FolderSource:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = read_names(folder)
        self._ids = {name: number for number, name in enumerate(self.names)}
        self._valid: dict[str, Array | None] = {}  # table -> numbers of complete rows; None: all

    def column(self, table: str, column: Column) -> Array:
        sealed = self.folder / f"{table}.parquet"
        if sealed.exists():
            try:
                return self._sealed_column(sealed, column)
            except (pa.ArrowException, OSError) as problem:
                raise HistoryFormat(f"{sealed} is damaged: {problem}") from None
        rows = mapped_rows(self.folder / f"{table}.rows", TABLES[table])
        if table not in self._valid:
            is_set = rows["is_set"] == 1
            self._valid[table] = None if is_set.all() else np.flatnonzero(is_set)
        valid = self._valid[table]
        whole = rows[column.name]
        return np.ascontiguousarray(whole if valid is None else whole[valid])

    def _sealed_column(self, file: Path, column: Column) -> Array:
        with pq.ParquetFile(file, memory_map=True) as parquet:
            found = np.empty(parquet.metadata.num_rows, np.dtype(column.dtype))
            at = 0
            for group in range(parquet.num_row_groups):
                for chunk in parquet.read_row_group(group, [column.name])[column.name].chunks:
                    values = self._numbers(chunk) if column.is_name else chunk.to_numpy()
                    found[at : at + len(chunk)] = values
                    at += len(chunk)
        return found

    def _numbers(self, chunk: pa.Array) -> Array:
        if not pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        ids = [self._ids.get(text, NONE) for text in chunk.dictionary.to_pylist()]
        places = chunk.indices.fill_null(len(ids)).to_numpy()
        return np.array([*ids, NONE], np.int32)[places]


def read_names(folder: Path) -> list[str]:
    """Return the strings that a recorder has written, without an incomplete last line."""
    file = folder / "names.jsonl"
    lines = file.read_bytes().split(b"\n") if file.exists() else []
    try:
        return [str(json.loads(line)) for line in lines[:-1]]
    except ValueError as problem:
        raise HistoryFormat(f"{file} is damaged: {problem}") from None


def mapped_rows(file: Path, table: Table) -> Array:
    """Map a file of rows into memory. An incomplete last row is left out."""
    dtype = np.dtype(table.dtype)
    count = file.stat().st_size // dtype.itemsize if file.exists() else 0
    return np.memmap(file, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)


def seal(run: Path) -> None:
    """Convert all rows of an ended run to Parquet."""
    for folder in recordings(run):
        names = read_names(folder)
        for table in TABLES.values():
            file = folder / f"{table.name}.rows"
            if file.exists():
                _seal_table(file, table, names)


def _seal_table(file: Path, table: Table, names: list[str]) -> None:
    schema = pa.schema(
        (c.name, _STRINGS if c.is_name else pa.from_numpy_dtype(c.dtype)) for c in table.columns
    )
    strings = pa.array(names, pa.string())
    rows = mapped_rows(file, table)
    made = file.with_suffix(".parquet.part")
    with pq.ParquetWriter(made, schema, compression="zstd") as writer:
        for start in range(0, len(rows), ROWS_A_GROUP):
            part = np.array(rows[start : start + ROWS_A_GROUP])
            part = part[part["is_set"] == 1]
            arrays = [_arrow(part[c.name], c, strings) for c in table.columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    made.rename(file.with_suffix(".parquet"))
    file.unlink()


def _arrow(values: Array, column: Column, strings: pa.Array) -> pa.Array:
    values = np.ascontiguousarray(values)
    if not column.is_name:
        return pa.array(values)
    is_none = (values < 0) | (values >= len(strings))
    indices = pa.array(np.where(is_none, 0, values).astype(np.int32), mask=is_none)
    return pa.DictionaryArray.from_arrays(indices, strings)

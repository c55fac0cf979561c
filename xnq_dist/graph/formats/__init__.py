"""The formats of input tables: Parquet, and text such as CSV.

Files of both have ``schema``, ``group_rows`` (rows of the groups that can be read
alone; a text file is one), ``nulls(column)`` and ``batches(columns, rows, groups)``.
"""

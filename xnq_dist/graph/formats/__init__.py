"""The formats of input tables: Parquet, and text such as CSV.

Files of both have ``schema``, ``group_rows`` (rows of the groups that can be read
alone; none in text) and ``batches(columns, rows, groups)``.
"""

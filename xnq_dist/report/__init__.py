"""The report page: tables turned into one self-contained HTML page."""

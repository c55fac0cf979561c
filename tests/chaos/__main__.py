"""Command of the harness: ``python -m tests.chaos --faults 20 --seed 0 --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.cases import FAULTS, choose
from tests.chaos.driver import run_cases
from tests.chaos.verdict import bad, table


def main(arguments: list[str] | None = None) -> int:
    """Run cases and print the table; return 1 if a column that must be empty is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", nargs="*", default=(), choices=names)
    chosen = parser.parse_args(arguments)
    cases = choose(chosen.faults, chosen.seed, tuple(chosen.only))
    out = chosen.out.absolute()
    records = run_cases(cases, out, chosen.jobs)
    text = table(records)
    (out / "outcomes.md").write_text(text + "\n")
    failed = bad(records)
    sys.stdout.write(text + "\n")
    for record in failed:
        last = record["runs"][-1]["sentences"] if record["runs"] else []
        sys.stdout.write(f"{record['name']}: {record['verdict']} {last}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

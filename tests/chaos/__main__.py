"""Command of the harness: ``python -m tests.chaos --faults 20 --seed 0 --out DIR``.

With ``--deployments N``, N faults are injected into runs of a Prefect deployment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.cases import FAULTS, choose
from tests.chaos.deployments import cases as deployed_cases
from tests.chaos.deployments import driver as deployed_driver
from tests.chaos.deployments import outcomes as deployed_outcomes
from tests.chaos.driver import run_cases
from tests.chaos.verdict import bad, table


def main(arguments: list[str] | None = None) -> int:
    """Run cases and print the table; return 1 if a column that must be empty is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    names = [fault.name for fault in (*FAULTS, *deployed_cases.KINDS)]
    parser.add_argument("--only", nargs="*", default=(), choices=names)
    parser.add_argument("--deployments", type=int, default=0, help="number of cases")
    parser.add_argument("--postgres", action="store_true", help="database of Prefect")
    chosen = parser.parse_args(arguments)
    if chosen.deployments:
        return _deployments(chosen)
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


def _deployments(chosen: argparse.Namespace) -> int:
    out = chosen.out.absolute()
    only = tuple(chosen.only)
    cases = deployed_cases.choose(chosen.deployments, chosen.seed, only)
    records = deployed_driver.run_cases(cases, out, chosen.jobs, chosen.postgres)
    text = table(records, deployed_outcomes.VERDICTS, "kind")
    (out / "deployments.md").write_text(text + "\n")
    sys.stdout.write(text + "\n")
    failed = bad(records, deployed_outcomes.BAD)
    for record in failed:
        messages = [run["message"] for run in record["runs"]]
        found = (record["name"], record["verdict"], messages, record["leaked"])
        sys.stdout.write(f"{found}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""SLD over many communities against QuaPy's EMQ in a loop (extra ``oracle``).

    python tests/benchmarks/sld_speed.py [--communities 2000]

Posteriors are calibrated logits. Prints one JSON line: seconds of both, their ratio,
and the largest difference between the estimates.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from quapy.method.aggregative import EMQ

from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.interface import Communities, NodeTable, Reference

PRIOR = np.array([0.7, 0.3])
NODES, SIZE, TIMED = 20_000, 100, 200


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--communities", type=int, default=2000)
    count = parser.parse_args().communities
    rng = np.random.default_rng(0)
    truth = rng.random(NODES) < PRIOR[1]
    logit = rng.normal(0, np.sqrt(2), NODES) + np.where(truth, 1, -1)
    share = 1 / (1 + np.exp(-logit - np.log(PRIOR[1] / PRIOR[0])))
    posteriors = np.column_stack([1 - share, share]).astype(np.float32)
    nodes = NodeTable(
        posteriors,
        np.full(NODES, -1, np.int32),
        np.zeros(NODES, bool),
        ("0", "1"),
        PRIOR,
        Reference(posteriors[:0], np.empty(0, np.int32)),
    )
    members = rng.integers(0, NODES, count * SIZE)
    sets = Communities(np.arange(count + 1) * SIZE, members)
    Sld().estimate(sets, nodes)  # compiles
    began = time.perf_counter()
    ours = Sld().estimate(sets, nodes).prevalence
    seconds = time.perf_counter() - began
    rows = [posteriors[part] for part in members.reshape(count, SIZE)[:TIMED]]
    began = time.perf_counter()
    theirs = np.stack([EMQ.EM(PRIOR, part)[0] for part in rows])
    peer = (time.perf_counter() - began) * count / TIMED
    apart = float(np.abs(ours[:TIMED] - theirs).max())
    found = {"ours": seconds, "quapy": peer, "ratio": peer / seconds, "apart": apart}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

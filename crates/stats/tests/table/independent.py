#!/usr/bin/env python3
"""Intervals of tables of comparisons, implemented a second time from the description in
crates/stats/src/table.rs and its parts, with the standard library alone.

Reads one JSON document from standard input: tables, each a list of rows with `kind` and `ratios`
(null for a block without a pair, "inf" for an infinite ratio). Writes [low, high] for each row, or
null for a row without an interval."""

import itertools
import json
import math
import statistics
import sys


def left_out(n):
    """The samples at either end that the exact interval of a median leaves out."""
    tail, count = 0.0, -1
    while tail + math.comb(n, count + 1) / 2**n <= 0.025 * (1 + 1e-12):
        count += 1
        tail += math.comb(n, count) / 2**n
    return count


def robust_variance(logs):
    middle = statistics.median(logs)
    squares = sorted((x - middle) ** 2 for x in logs)
    kept = squares[: len(logs) - len(logs) // 6]
    return 2 * sum(kept) / len(kept)


def located(logs, lent):
    own = len(logs) - 1
    moderated = lambda variance: math.sqrt((8 * lent + own * variance) / (8 + own))
    middle = statistics.median(logs)
    robust = 1.4826 * statistics.median([abs(x - middle) for x in logs])
    reach = 2 * moderated(robust**2)
    clipped = [min(max(x, middle - reach), middle + reach) for x in logs]
    mean = sum(clipped) / len(logs)
    variance = sum((x - mean) ** 2 for x in clipped) / own
    return mean, max(moderated(variance), 1e-9)


def intervals(table):
    finite = [
        abs(math.log(r)) for row in table for r in row["ratios"] if r is not None and 0 < r < math.inf
    ]
    worst = max(finite + [math.log(2)])
    log = lambda r: -worst if r == 0 else min(math.log(r), worst)
    logs = []
    for row in table:
        known = {block: log(r) for block, r in enumerate(row["ratios"]) if r is not None}
        has_figures = any(0 < r < math.inf for r in row["ratios"] if r is not None)
        logs.append(known if len(known) >= 6 and has_figures else None)
    part = [i for i, known in enumerate(logs) if known is not None]
    variance = {i: robust_variance(list(logs[i].values())) for i in part}
    lent = {}
    for i in part:
        same = [variance[j] for j in part if table[j]["kind"] == table[i]["kind"]]
        of_table = statistics.median(same if len(same) >= 4 else list(variance.values()))
        lent[i] = min(of_table, 20 * statistics.variance(logs[i].values()))
    fits = {i: located(list(logs[i].values()), lent[i]) for i in part}
    bound = None
    if len(part) > 1:
        blocks = sorted({block for i in part for block in logs[i]})
        largest = []
        for signs in itertools.product((1, -1), repeat=len(blocks) - 1):
            if all(sign == 1 for sign in signs):
                continue
            sign = dict(zip(blocks, (1,) + signs))
            statistic = []
            for i in part:
                n = len(logs[i])
                inflation = math.sqrt(n / (n - 1))
                flipped = [sign[b] * (x - fits[i][0]) * inflation for b, x in logs[i].items()]
                mean, deviation = located(flipped, lent[i])
                statistic.append(math.sqrt(n) * abs(mean) / deviation)
            largest.append(max(statistic))
        beyond = max(1, int(0.025 * (len(largest) + 1)))
        bound = sorted(largest)[-beyond]
    found = []
    for i, row in enumerate(table):
        known = sorted(r for r in row["ratios"] if r is not None)
        if len(known) < 6:
            found.append(None)
            continue
        skip = left_out(len(known))
        low, high = known[skip], known[-1 - skip]
        if bound is not None and logs[i] is not None:
            mean, deviation = fits[i]
            half = bound * deviation / math.sqrt(len(known))
            low, high = min(low, math.exp(mean - half)), max(high, math.exp(mean + half))
        found.append([low, "inf" if high == math.inf else high])
    return found


def main():
    tables = json.load(sys.stdin)
    for row in (row for table in tables for row in table):
        row["ratios"] = [math.inf if r == "inf" else r for r in row["ratios"]]
    json.dump([intervals(table) for table in tables], sys.stdout)


main()

"""The table of a soak run and the verdict, as text and as JSON."""

import dataclasses
import math
import statistics

from sample import QUANTITIES, WORLD
from trend import HOUR, trend, verdict

# Growth above this share of the level an hour is a defect.
BOUND = 1
# Minimum number of seconds after the warm-up for which a trend is judged.
SHORTEST = 600
# The level at which all intervals of a table hold together.
CONFIDENCE = 0.95


def rows_of(series, warm_up):
    """Returns a row for each process and quantity, from the samples after the warm-up."""
    found = []
    for name, (times, columns) in series.items():
        first = next((index for index, time in enumerate(times) if time >= warm_up), len(times))
        for quantity, values in columns.items():
            found.append((name, quantity, times[first:], values[first:]))
    confidence = 1 - (1 - CONFIDENCE) / max(len(found), 1)
    return [row(*one, confidence) for one in found]


def row(name, quantity, times, values, confidence):
    if quantity == "log":
        # A log may grow, and its rate of growth must stay. Lines come in bursts, so a rate covers
        # several samples.
        step = max(len(times) // 48, 1)
        times, values = times[::step], values[::step]
        values = [(b - a) / (t - s) * HOUR
                  for a, b, s, t in zip(values, values[1:], times, times[1:])]
        times = times[1:]
        quantity, unit = "log rate", "B/h"
    else:
        unit = QUANTITIES.get(quantity, "")
    is_long = len(times) > 1 and times[-1] - times[0] >= SHORTEST
    found = trend(times, values, confidence) if is_long else None
    if found and quantity == "log rate":
        # Most pieces of a quiet log have no line: a share of their median would be meaningless.
        found = dataclasses.replace(found, level=max(found.level, statistics.fmean(values)))
    said, hours = verdict(found, BOUND)
    return {
        "process": name, "quantity": quantity, "unit": unit, "samples": len(values),
        "first": values[0] if values else None, "last": values[-1] if values else None,
        "level": found and found.level, "slope_an_hour": found and found.slope,
        "interval": found and [finite(found.low), finite(found.high)],
        "percent_an_hour": found and found.percent(found.slope),
        "percent_interval": found and [finite(found.percent(end)) for end in (found.low, found.high)],
        "verdict": said, "hours_that_decide": hours,
    }


def finite(value):
    return value if math.isfinite(value) else None


def table(rows):
    """Returns the rows as a table in Markdown."""
    lines = ["| process | quantity | level | growth an hour | interval | verdict |",
             "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        level = growth = interval = "-"
        if one["level"] is not None:
            level = f"{one['level']:,.0f} {one['unit']}".strip()
            growth = f"{one['percent_an_hour']:+.2f} %"
            low, high = one["percent_interval"]
            interval = "none" if low is None else f"{low:+.2f} to {high:+.2f} %"
        lines.append(f"| {one['process']} | {one['quantity']} | {level} | {growth} | {interval} | "
                     f"{words(one)} |")
    return lines


def words(one):
    if one["verdict"] == "growth":
        return "**growth**"
    if one["verdict"] == "no growth":
        return "no growth"
    hours = one["hours_that_decide"]
    if hours is None:
        return "undecided: too short"
    return f"undecided: {hours:.1f} h would decide" if hours < 100 else "undecided: over 100 h"


def document(rows, account, facts):
    """Returns the whole run as JSON."""
    return facts | {
        "bound_percent_an_hour": BOUND, "confidence_of_all": CONFIDENCE, "rows": rows,
        "served": dict(sorted(account.served.items())),
        "broken_in_announced_disturbances": dict(account.excused),
        "failures": account.failures, "lost": account.lost, "left": account.left,
    }


def summary(rows, account):
    """Returns the lines below the table, and whether the run has passed."""
    lines = [""]
    lines += [f"served: {kind}: {number:,}" for kind, number in sorted(account.served.items())]
    lines += [f"broken by an announced disturbance: {kind}: {number:,}"
              for kind, number in sorted(account.excused.items())]
    growing = [one for one in rows if one["verdict"] == "growth"]
    for title, found in [("failure without an announced reason", account.failures),
                         ("bytes lost or changed", account.lost), ("left behind", account.left)]:
        lines += [f"{title}, after {when:.1f} s: {text}" for when, text in found]
    lines += [f"growth: {one['process']}, {one['quantity']}" for one in growing]
    undecided = sum(one["verdict"] == "undecided" for one in rows)
    bad = [growing, account.failures, account.lost, account.left]
    counts = ", ".join(f"{len(part)} {name}" for part, name in
                       zip(bad, ["growing", "failures", "lost", "left behind"]))
    lines.append(f"soak: {'FAILED' if any(bad) else 'passed'}: {counts}; {undecided} of {len(rows)} "
                 "trends undecided")
    return lines, not any(bad)


__all__ = ["rows_of", "table", "summary", "document", "WORLD"]

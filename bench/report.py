# SPDX-License-Identifier: Apache-2.0
"""Figures: medians and percentiles of samples, one table for people, one JSON file for programs."""

import json
import math
import os
import platform
import time


def percentile(samples, share):
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def median(samples):
    return percentile(samples, 0.5)


def column(rows, at):
    return [row[at] for row in rows]


def show(value):
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


class Report:
    HEAD = ("row", "what", "p50", "p99", "unit", "n", "budget", "")

    def __init__(self):
        self.lines, self.broken, self.started = [], [], time.time()
        self.load_average = os.getloadavg()[0]

    def samples(self, row, what, unit, samples, budget=None, p99_budget=None, note=""):
        """Of many measurements: median and 99th percentile; less is better."""
        self.add(row, what, unit, median(samples), percentile(samples, 0.99), len(samples), budget, p99_budget, "less", note)

    def value(self, row, what, unit, value, budget=None, better="less", note=""):
        self.add(row, what, unit, value, None, 1, budget, None, better, note)

    def add(self, row, what, unit, p50, p99, n, budget, p99_budget, better, note):
        met = None
        if budget is not None:
            met = p50 <= budget if better == "less" else p50 >= budget
        if p99_budget is not None:
            met = met is not False and p99 <= p99_budget
        self.lines.append({"row": row, "what": what, "unit": unit, "p50": p50, "p99": p99, "n": n, "budget": budget,
                           "p99_budget": p99_budget, "better": better, "met": met, "note": note})

    def missing(self, row, why):
        self.lines.append({"row": row, "what": "not measured", "note": why, "met": None})

    def fail(self, row, why):
        self.broken.append(f"{row}: {why}")
        self.lines.append({"row": row, "what": "BROKEN", "note": why, "met": False})

    def cells(self, line):
        budget = ""
        if line.get("budget") is not None:
            budget = ("<= " if line["better"] == "less" else ">= ") + show(line["budget"])
            if line["p99_budget"] is not None:
                budget += f", p99 {show(line['p99_budget'])}"
            budget += " ok" if line["met"] else " OVER" if line["better"] == "less" else " UNDER"
        n = line.get("n")
        return (line["row"], line["what"], show(line.get("p50")), show(line.get("p99")), line.get("unit", ""), str(n) if n and n > 1 else "",
                budget, line["note"])

    def table(self):
        rows = [self.HEAD, *(self.cells(line) for line in self.lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.HEAD) - 1)]
        right = {2, 3, 5}
        text, last = [], None
        for i, row in enumerate(rows):
            shown = [row[0] if row[0] != last else "", *row[1:]]
            last = row[0]
            cells = [c.rjust(w) if j in right else c.ljust(w) for j, (c, w) in enumerate(zip(shown, widths))]
            text.append("  ".join([*cells, row[-1]]).rstrip())
            if i == 0:
                text.append("-" * min(160, sum(widths) + 2 * len(widths)))
        return "\n".join(text)

    def data(self):
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
        return {"machine": {"cpus": os.cpu_count(), "cpu": cpu, "kernel": platform.release(), "load_average_before": self.load_average},
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
                "seconds": round(time.time() - self.started, 1), "lines": self.lines, "broken": self.broken}

    def write(self, path):
        path.write_text(json.dumps(self.data(), indent=1) + "\n")

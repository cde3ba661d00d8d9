"""A hook: adds a line on each run to report.txt beside the cluster file."""

import json
import sys

event = json.load(sys.stdin)
receipt = event["receipt"] or {}
left = "nothing is left" if receipt.get("clean") else "look at the receipt"
with open("report.txt", "a") as file:
    print(event["name"], event["outcome"], event["exit_code"], left, file=file)

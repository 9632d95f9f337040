"""The program that the official suite starts as its client: `python client_knock.py SOCKET URL`. The test that began the suite lives through the
scenario for it (client_driver.py), and it ends as that came out. To import what a client needs takes longer than a scenario.
"""

from __future__ import annotations

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    asked = {
        "url": sys.argv[2],
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    door.sendall(json.dumps(asked).encode() + b"\n")
    with door.makefile("rb") as answer:
        code, said = json.load(answer)
sys.stderr.write(said)  # the suite keeps it beside its results
sys.exit(code)

"""The cost of the tracer to an agent: one recorded tool call beside the bare call, while the gateway is well, away, hanging or failing.

    python -m benchmarks.tracer [--calls 5000]

Every run is a process of its own with a server of its own; rounds alternate, and medians are printed. `end` is the time that the end of the
branch waits, `exit` the time from there to the end of the process.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CASES = ("bare", "well", "away", "hanging", "failing")
ROUNDS = 5
AGENT = """
import json, logging, sys, time
logging.disable()
from braidstream import Braid
case, url, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
def read_file(path):
    return "line\\n" * 40
times = []
def work(tool):
    for number in range(calls):
        began = time.perf_counter()
        tool(path=f"src/{number}.py")
        times.append(time.perf_counter() - began)
if case == "bare":
    work(read_file)
    ended = 0.0
else:
    with Braid(url).rollout("r").branch(0) as run:
        work(run.tool(read_file))
        began = time.perf_counter()
    ended = time.perf_counter() - began
times.sort()
print(json.dumps([times[calls // 2], times[calls * 99 // 100], ended, time.time()]))
"""


def served(case: str) -> tuple[ThreadingHTTPServer | None, str]:
    """A server that behaves like that, and its address."""
    if case in ("bare", "away"):
        return None, "http://127.0.0.1:9"

    class Handler(BaseHTTPRequestHandler):
        """Answers as the case says."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Take a request."""
            self.rfile.read(int(self.headers["Content-Length"]))
            if case == "hanging":
                time.sleep(60)
            self.send_response(500 if case == "failing" else 202)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_given: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5000)
    calls = parser.parse_args().calls
    found: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(ROUNDS):
        for case in CASES:
            server, url = served(case)
            command = [sys.executable, "-c", AGENT, case, url, str(calls)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            p50, p99, ended, at = json.loads(done.stdout)
            found[case].append([p50, p99, ended, time.time() - at])
            if server is not None:
                server.shutdown()
    print(
        f"{calls} calls, medians of {ROUNDS} runs\n{'gateway':10} {'p50 us':>8} {'p99 us':>8} {'end s':>8} {'exit s':>8}"
    )
    for case in CASES:
        p50, p99, ended, left = (statistics.median(column) for column in zip(*found[case], strict=True))
        print(f"{case:10} {p50 * 1e6:8.1f} {p99 * 1e6:8.1f} {ended:8.2f} {left:8.2f}")


if __name__ == "__main__":
    main()

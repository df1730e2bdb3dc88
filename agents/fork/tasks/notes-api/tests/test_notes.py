import http.client
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

# Runs on the workspace: for each line a fresh server, whose port is the answer; answers have a pipe of their own.
PROGRAM = """
import sys, threading
sys.path.append(".")
from app import make_server
with open(int(sys.argv[1]), "w") as answers:
    for _ in sys.stdin:
        server = make_server(0)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        print(server.server_address[1], file=answers, flush=True)
"""


@pytest.fixture(scope="module")
def servers():
    """A process that runs the agent's code, and the pipe that its answers come from."""
    answers, inside = os.pipe()
    command = ["work", "--fd", str(inside), "python3", "-P", "-c", PROGRAM, str(inside)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(inside,), text=True
    )
    os.close(inside)
    with os.fdopen(answers) as told:
        yield process, told
    process.kill()
    process.wait()


@pytest.fixture
def ask(servers):
    """Requests to a fresh server of the agent's."""
    process, told = servers
    print(file=process.stdin, flush=True)
    said = told.readline().strip()
    assert said.isdigit(), "make_server(0) gives no server"
    port = int(said)

    def ask(method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, raw)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None, answer.headers

    return ask


def test_a_note_is_created_and_read(ask):
    status, note, headers = ask("POST", "/notes", {"text": "milk"})
    assert (status, note, headers["Location"]) == (201, {"id": 1, "text": "milk"}, "/notes/1")
    assert ask("GET", "/notes/1")[:2] == (200, {"id": 1, "text": "milk"})


def test_all_notes_in_order(ask):
    for text in "abc":
        ask("POST", "/notes", {"text": text})
    status, body, _ = ask("GET", "/notes")
    assert (status, [note["text"] for note in body["notes"]]) == (200, ["a", "b", "c"])


def test_deleted_is_gone_and_its_id_is_not_given_again(ask):
    ask("POST", "/notes", {"text": "a"})
    assert ask("DELETE", "/notes/1")[:2] == (204, None)
    assert ask("GET", "/notes/1")[0] == 404
    assert ask("DELETE", "/notes/1")[0] == 404
    assert ask("POST", "/notes", {"text": "b"})[1]["id"] == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff\xfe", {}, {"text": None}, {"text": 5}, {"text": ""}, {"text": "  \n"}, {"text": "x" * 281}],
)
def test_a_bad_note_is_refused_with_a_reason(ask, body):
    status, answer, _ = ask("POST", "/notes", body)
    assert status == 422
    assert isinstance(answer["error"], str)
    assert ask("GET", "/notes")[1] == {"notes": []}


def test_280_characters_are_not_too_many(ask):
    assert ask("POST", "/notes", {"text": "é" * 280})[0] == 201


def test_a_huge_body_is_refused(ask):
    assert ask("POST", "/notes", b" " * 70_000)[0] == 413


@pytest.mark.parametrize("path", ["/", "/note", "/notes/", "/notes/x", "/notes/0", "/notes/1/2", "/notes/-1"])
def test_other_paths_are_not_found(ask, path):
    status, body, _ = ask("GET", path)
    assert (status, "error" in body) == (404, True)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/notes"), ("DELETE", "/notes"), ("POST", "/notes/1"), ("PUT", "/notes/1")])
def test_other_methods_are_not_allowed(ask, method, path):
    assert ask(method, path, {"text": "a"})[0] == 405


def test_parallel_requests_get_ids_of_their_own(ask):
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda number: ask("POST", "/notes", {"text": str(number)})[1]["id"], range(64)))
    assert sorted(ids) == list(range(1, 65))

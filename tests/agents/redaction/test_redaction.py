"""Redaction: made-up secrets leave every context entirely, look-alikes stay byte for byte."""

import ast
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.redaction import redaction
from agents.redaction.redaction import RULES, Redacted, contains_secret, placeholder, redact, redact_json
from agents.redaction.secret_assignments import SecretName, secret_name
from tests.agents.formats.rollouts import branch, group_of, opening
from tests.agents.redaction.secrets_corpus import CUT_KEYS, FORMATS, IN_CONTEXT, LOOK_ALIKES, Found, Secret, fake, pem
from tests.examples import shares

CONTEXTS: dict[str, str] = {
    "alone": "%s",
    "tool output": "2024-05-01 12:00:00 INFO using %s\nexit code 0",
    "answer": "Set it to `%s`, then run it again.",
    "end of a sentence": "It is %s.",
    "environment file": "NAME=%s\nOTHER=1",
    "command line": "tool --with '%s' --verbose",
    "list": '["first", "%s", "last"]',
    "URL encoded": "q%%3D%s&page=2",
    "coloured terminal": "\x1b[32m%s\x1b[0m",
    "other alphabet": "ключ%sключ",
}

MEGABYTE = 1_000_000
HOSTILE: dict[str, str] = {
    "one letter": "a" * MEGABYTE,
    "begins": "-----BEGIN" * (MEGABYTE // 10),
    "token heads": "eyJ" * (MEGABYTE // 3),
    "addresses": "x@" * (MEGABYTE // 2),
    "a long local part": "a" * MEGABYTE + "@",
    "a long domain": "a@" + "b." * (MEGABYTE // 2),
    "backslashes": "\\" * MEGABYTE,
    "key begins": "-----BEGIN PRIVATE KEY-----\n" * 9_000,
    "key ends": "-----END PRIVATE KEY-----" * 10_000,
    "key material": ("A" * 64 + "\n-----END") * 3_000,
    "separated token heads": "eyJ-" * 60_000,
    "key prefixes": "sk-" * 80_000,
    "assignments": "token=" * 40_000,
    "numbered assignments": "token=a1" * 30_000,
    "names of keys": "secret_access_key:" * 14_000,
    "open quotes": 'password="' * 25_000,
    "options": "--token " * 30_000,
    "URLs": "://a:" * 50_000,
    "homes": "/home/a" * 35_000,
    "placeholders": "[REDACTED:aws_access_key]" * 10_000,
    "commands": "curl " * 50_000,
    "passwords of one command": ("mysql" + " -pabc1d" * 60 + "\n") * 500,
    "open quotes of a command": 'mysql -p"' * 28_000,
    "logins": "docker login -p " * 16_000,
    "pipes": ("echo " * 50 + "sudo -S ") * 1_000,
    "cookies": "Cookie: " + "sid=38afes7a8d9f7g6h5j4k; " * 10_000,
    "kinds": "kind: Secret\n" * 19_000,
    "manifests": ("apiVersion: v1\ndata:\n" + "  a: aHVudGVyNDI=\n" * 3_000 + "kind: Secret\n") * 5,
}


def fragments(secret: str, length: int) -> set[str]:
    """Parts of a secret that must not be left: any stretch of it, but for the marker lines that say that there was a
    key."""
    body = secret.split("KEY-----", 1)[-1].split("-----END", 1)[0]
    return {body[i : i + length] for i in range(len(body) - length + 1)}


@pytest.mark.parametrize("secret", FORMATS, ids=lambda secret: secret.kind)
@pytest.mark.parametrize("context", CONTEXTS)
def test_known_formats_are_removed_entirely(secret: Secret, context: str) -> None:
    """A secret of a known format leaves any context, counted once as what it is."""
    cleaned = redact(CONTEXTS[context] % secret.text)
    assert cleaned.counts == ((secret.kind, 1),)
    assert not any(fragment in cleaned.text for fragment in fragments(secret.text, 8))


@pytest.mark.parametrize("secret", FORMATS, ids=lambda secret: secret.kind)
def test_known_formats_are_removed_from_json_in_json(secret: Secret) -> None:
    """Escaped line ends, quotes and backslashes neither hide a secret nor are damaged by its removal."""
    text = json.dumps({"output": json.dumps({"stdout": f"first\n{secret.text}\tlast"})})
    cleaned = redact(text)
    assert cleaned.counts == ((secret.kind, 1),)
    assert not any(fragment in cleaned.text for fragment in fragments(secret.text, 8))
    assert json.loads(json.loads(cleaned.text)["output"]) == {"stdout": f"first\n{placeholder(secret.kind)}\tlast"}


@pytest.mark.parametrize("found", IN_CONTEXT, ids=lambda found: f"{found.kind}-{found.text[:24]}")
def test_secrets_given_away_by_their_context_are_removed(found: Found) -> None:
    """A secret that only a name, a header, a URL or a path gives away is removed and counted."""
    cleaned = redact(found.text)
    assert found.kind in dict(cleaned.counts)
    assert found.secret not in cleaned.text
    if len(found.secret) > 8:
        assert not any(fragment in cleaned.text for fragment in fragments(found.secret, 6))


@pytest.mark.parametrize("found", IN_CONTEXT, ids=lambda found: f"{found.kind}-{found.text[:24]}")
def test_secrets_in_context_are_removed_from_a_tool_output_in_json(found: Found) -> None:
    """The same secrets, in an output that was written as a JSON string, on a line of its own."""
    text = json.dumps({"stdout": f"line\n{found.text}\nline"}, ensure_ascii=False)
    cleaned = redact(text)
    assert json.dumps(found.secret, ensure_ascii=False)[1:-1] not in cleaned.text
    assert json.loads(cleaned.text)["stdout"].startswith("line\n")


@pytest.mark.parametrize("key", CUT_KEYS, ids=range(len(CUT_KEYS)))
def test_a_cut_private_key_is_still_a_key(key: str) -> None:
    """Keys without beginning, without end, with escaped line ends or with headers leave no line behind."""
    cleaned = redact(f"before\n{key}\nafter")
    assert dict(cleaned.counts) == {"private_key": 1}
    assert not any(fragment in cleaned.text for fragment in fragments(key, 10))
    assert cleaned.text.startswith("before")
    assert cleaned.text.endswith("after")


@pytest.mark.parametrize("text", LOOK_ALIKES, ids=lambda text: text[:40])
def test_look_alikes_come_back_as_the_same_object(text: str) -> None:
    """Hashes, versions, code, templates and addresses of machines are no secrets."""
    assert redact(text) == Redacted(text, ())
    assert redact(text).text is text


@pytest.mark.parametrize("text", LOOK_ALIKES, ids=lambda text: text[:40])
def test_look_alikes_stay_in_json_strings(text: str) -> None:
    """Escaping does not make a secret of what is none."""
    escaped = json.dumps({"content": f"first\n{text}\nlast"})
    assert redact(escaped).text is escaped


def test_the_corpus_is_large_enough() -> None:
    """At least sixty secrets and sixty look-alikes stand behind these tests, and every rule has a secret."""
    assert len(FORMATS) + len(IN_CONTEXT) >= 60
    assert len(LOOK_ALIKES) >= 60
    tested = {secret.kind for secret in FORMATS} | {found.kind for found in IN_CONTEXT}
    assert {rule.kind for rule in RULES} == tested


def test_counts_are_sorted_by_kind() -> None:
    """Counts say how many of each kind, in the order of the kinds' names."""
    text = f"bob@corp.test {FORMATS[0].text} eve@corp.test /home/bob/x"
    assert redact(text).counts == (("anthropic_key", 1), ("email", 2), ("home_directory", 1))


def test_what_surrounds_a_secret_stays() -> None:
    """Only the secret goes: host, user-less URL, path and header name are still readable."""
    assert redact("GET https://bob:pw12345@db.corp.test:5432/x?y=1").text == (
        "GET https://[REDACTED:url_credentials]@db.corp.test:5432/x?y=1"
    )
    assert redact("cat /home/frank/app/main.py").text == "cat /home/[REDACTED:home_directory]/app/main.py"
    assert redact("C:\\Users\\heidi\\x").text == "C:\\Users\\[REDACTED:home_directory]\\x"
    assert redact("sudo sshpass -p hunter42 ssh -p 2222 host").text == (
        "sudo sshpass -p [REDACTED:command_password] ssh -p 2222 host"
    )
    assert redact(f"Cookie: a=b; sid={fake(32)}; sso={fake(40)}; lang=en").text == (
        "Cookie: a=b; sid=[REDACTED:session_cookie]; sso=[REDACTED:session_cookie]; lang=en"
    )
    assert redact(f'{{"api_key": "{fake(32)}", "n": 1}}').text == '{"api_key": "[REDACTED:assigned_secret]", "n": 1}'


def test_a_secret_longer_than_what_is_looked_at_goes_as_a_whole() -> None:
    """Deciding on the beginning of a long key removes its end too."""
    for text in ("ghp_" + fake(3000), f'token = "{fake(3000)}"', f"Authorization: Bearer {fake(3000)}"):
        assert not any(fragment in redact(text).text for fragment in fragments(text[30:-1], 8))


def test_two_secrets_that_touch_both_go() -> None:
    """The end of one secret does not hide the beginning of the next."""
    text = f"{FORMATS[10].text}{FORMATS[16].text}{pem()}{pem()}"
    assert not any(fragment in redact(text).text for fragment in fragments(text, 10))


def test_text_that_is_not_unicode_is_redacted_too() -> None:
    """A lone surrogate, as JSON can carry it, does not switch redaction off."""
    cleaned = redact(f"\ud800 {FORMATS[10].text}")
    assert cleaned == Redacted("\ud800 [REDACTED:github_token]", (("github_token", 1),))


@pytest.mark.parametrize("shape", HOSTILE)
@pytest.mark.timeout(60)
def test_hostile_text_takes_no_longer_than_any_text(shape: str) -> None:
    """A megabyte made to send a pattern back and forth is done in seconds, and is then clean."""
    assert not contains_secret(redact(HOSTILE[shape]).text)


pieces = st.one_of(
    st.sampled_from([secret.text for secret in FORMATS] + [found.text for found in IN_CONTEXT] + list(CUT_KEYS)),
    st.sampled_from(LOOK_ALIKES),
    st.sampled_from(sorted({anchor for rule in RULES for anchor in rule.anchors})),
    st.sampled_from(
        [
            "",
            " ",
            "\n",
            "\\n",
            '"',
            '\\"',
            "'",
            "=",
            ": ",
            "@",
            "/",
            "\\",
            "-",
            "_",
            ".",
            "[REDACTED:jwt]",
            "[REDACTED:",
            "]",
        ]
    ),
    st.text(max_size=6),
)


@given(st.lists(pieces, max_size=12), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=shares(6), deadline=None)
def test_redacting_twice_changes_and_counts_nothing_more(parts: list[str], skip: int, drop: int) -> None:
    """For any neighbours and any cut: the first redaction is the last."""
    text = "".join(parts)
    once = redact(text[skip : len(text) - drop])
    assert redact(once.text) == Redacted(once.text, ())
    assert not contains_secret(once.text)


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=200))
@settings(deadline=None)
def test_the_same_object_comes_back_when_nothing_is_counted(text: str) -> None:
    """No copy, no change, no count: all three or none."""
    cleaned = redact(text)
    assert (cleaned.text is text) == (cleaned.counts == ())


def test_contains_secret_says_what_redact_would_do() -> None:
    """The last check is true for secrets and personal data, false for what is left of them."""
    assert contains_secret(f"key {FORMATS[0].text}")
    assert contains_secret("write to bob@corp.test")
    assert not contains_secret(redact(f"key {FORMATS[0].text}, bob@corp.test").text)
    assert not contains_secret("nothing here")


def test_the_examples_in_the_manual_are_true() -> None:
    """The examples on the page about redaction are true."""
    manual = Path(__file__).parents[3] / "docs/redaction.md"
    lines = manual.read_text().split("```python\n")[1].split("```")[0].splitlines()
    scope: dict[str, Any] = {}
    exec(lines[0], scope)
    for call, _, result in (line.partition("  # ") for line in lines[2:]):
        assert result.strip().startswith(repr(eval(call, scope)))


def test_json_without_secrets_is_the_same_object() -> None:
    """A value in which nothing is found is not copied."""
    value = {"cmd": "ls -la", "n": 3, "nested": [{"x": None, "ok": True}], "token_count": "12345678901234567890"}
    cleaned = redact_json(value)
    assert cleaned.value is value
    assert cleaned.counts == ()


def test_only_the_way_to_a_change_is_copied() -> None:
    """The input is not touched, and what did not change is shared with it."""
    value = {"same": {"a": [1]}, "changed": [{"mail": "bob@corp.test"}, "x"]}
    before = json.dumps(value)
    cleaned = redact_json(value)
    assert cleaned.value == {"same": {"a": [1]}, "changed": [{"mail": "[REDACTED:email]"}, "x"]}
    assert cleaned.value["same"] is value["same"]
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    "value",
    [
        {"password": "hunter" + "42"},
        {"config": {"apiKey": fake(32)}},
        {"Authorization": fake(40)},
        {"env": [{"name": "DB_PASSWORD", "value": "Tr0ub" + "4dor"}]},
        {"secrets": [fake(24)]},
        {"auth": fake(30)},
        {"env": {"SSHPASS": "hunter" + "42"}},
        {"argv": ["deploy", "--password", "hunter" + "42", "--port", "22"]},
        {"cookies": {"sessionid": fake(32), "lang": "en"}},
        {"cookies": [{"name": "connect.sid", "value": fake(32), "domain": "shop.test"}]},
    ],
    ids=str,
)
def test_the_name_of_a_field_gives_its_value_away(value: Any) -> None:
    """A value that looks like a secret in a field that is called one is a `secret_field`."""
    cleaned = redact_json(value)
    assert cleaned.counts == (("secret_field", 1),)
    assert placeholder("secret_field") in json.dumps(cleaned.value)


@pytest.mark.parametrize(
    "value",
    [
        {"password": ""},
        {"password": "string", "token": None, "secret": True},
        {"token": "hello", "next_page_token": fake(24)},
        {"password": "${DB_PASSWORD}", "api_key": "<your key>"},
        {"token_type": "Bearer", "secret_name": "prod-db-2024-a1b2c3d4"},
        {"commit": fake(40, "0123456789abcdef"), "id": fake(24)},
        {"session_id": "550e8400-e29b-41d4-a716-446655440000", "cookies": {"lang": "en", "bob@corp": "1"}},
        {"argv": ["deploy", "--password-stdin", "--token-file", "t0ken-2024.txt", "--verbose", "hunter" + "42"]},
    ],
    ids=str,
)
def test_fields_called_secret_may_hold_something_else(value: Any) -> None:
    """Words, templates, numbers and what is about a secret stay in fields with such names."""
    assert redact_json(value).value is value


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["docker", "login", "-u", "bob", "-p", "hunter" + "42", "registry.test"], 5),
        (["sudo", "mysqldump", "-uroot", "-p" + "hunter" + "42", "shop"], 3),
        (["/usr/bin/mysql", "--password=" + "opensesame"], 1),
        (["sshpass", "-p", "hunter" + "42", "ssh", "-p", "2222", "host"], 2),
        (["curl", "-u", "bob:" + "hunter" + "42", "https://api.test", 3], 2),
        (["redis-cli", "-a", "opensesame", "ping"], 2),
        (["bash", "-lc", "docker login -p " + "hunter" + "42"], 2),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_may_be_a_list_of_words(words: list[Any], at: int) -> None:
    """The arguments of a call that starts a process: one word changes, the others are as they were."""
    cleaned = redact_json({"command": words})
    assert cleaned.counts == (("command_password", 1),)
    (changed,) = [n for n, (one, other) in enumerate(zip(words, cleaned.value["command"], strict=True)) if one != other]
    assert changed == at
    assert cleaned.value["command"][at].endswith(placeholder("command_password"))
    assert redact_json(cleaned.value).value is cleaned.value


@pytest.mark.parametrize(
    "words",
    [
        ["docker", "run", "-p", "80:80", "-p", "127.0.0.1:443:443", "nginx"],
        ["docker", "login", "-u", "bob", "-p", "$PASSWORD"],
        ["mysql", "-u", "root", "-p", "shop"],
        ["ssh", "-p", "2222", "host"],
        ["curl", "-u", "bob", "-o", "a:b"],
        ["sudo", 'a", "b', "mysql", "-p"],
        ["curl"],
        [],
    ],
    ids=str,
)
def test_words_of_other_commands_stay(words: list[str]) -> None:
    """Ports, templates and options of other programs are no passwords."""
    value = {"command": words}
    assert redact_json(value).value is value


def test_a_field_of_cookies_is_read_as_a_header() -> None:
    """Of the cookies in a field only those go that are as good as a password."""
    value = {"headers": {"Cookie": f"lang=en; sessionid={fake(32)}", "Set-Cookie": [f"sid={fake(26)}; Path=/", "a=b"]}}
    assert redact_json(value) == (
        {
            "headers": {
                "Cookie": "lang=en; sessionid=[REDACTED:session_cookie]",
                "Set-Cookie": ["sid=[REDACTED:session_cookie]; Path=/", "a=b"],
            }
        },
        (("session_cookie", 2),),
    )


def test_strings_in_json_are_redacted_like_text() -> None:
    """A string alone is a JSON value too; kinds of text and fields are counted together."""
    assert redact_json("bob@corp.test") == ("[REDACTED:email]", (("email", 1),))
    value = {"cmd": f"export X={FORMATS[10].text}", "password": "hunter" + "42"}
    assert redact_json(value).counts == (("github_token", 1), ("secret_field", 1))


def test_names_of_fields_stay_and_are_counted_apart() -> None:
    """A name is structure: it is not rewritten, but the record says that something is still there."""
    value = {"bob@corp.test": 1}
    cleaned = redact_json(value)
    assert cleaned.value is value
    assert cleaned.counts == (("key:email", 1),)


def test_redacting_json_twice_changes_nothing_more() -> None:
    """Placeholders in secret fields are no secrets."""
    once = redact_json({"password": "hunter" + "42", "to": ["bob@corp.test"], "key": FORMATS[0].text})
    assert redact_json(once.value).value is once.value
    assert redact_json(once.value).counts == ()


def test_deep_json_does_not_exhaust_the_stack() -> None:
    """Nesting costs memory, never recursion."""
    value: Any = "bob@corp.test"
    for _ in range(20_000):
        value = [value]
    cleaned = redact_json(value).value
    for _ in range(20_000):
        cleaned = cleaned[0]
    assert cleaned == "[REDACTED:email]"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("password", SecretName.PASSWORD),
        ("dbPassword2", SecretName.PASSWORD),
        ("SMTP_PASS", SecretName.PASSWORD),
        ("AWS_SECRET_ACCESS_KEY", SecretName.SECRET),
        ("x-api-key", SecretName.SECRET),
        ("clientSecret", SecretName.SECRET),
        ("GITHUB_TOKEN", SecretName.TOKEN),
        ("refreshToken", SecretName.TOKEN),
        ("primary_key", None),
        ("keyboard", None),
        ("tokenizer", None),
        ("max_tokens", None),
        ("eos_token", None),
        ("nextPageToken", None),
        ("password_hash", None),
        ("secret_id", None),
        ("bypass", None),
        ("", None),
    ],
)
def test_what_a_name_promises(name: str, kind: SecretName | None) -> None:
    """A name promises a secret by its words, not by its letters, and not when it is about one."""
    assert secret_name(name) is kind


def code(path: Path) -> str:
    """A module without its descriptions: their words may change."""
    source = path.read_text("utf-8")
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.end_lineno:
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(filter(None, lines))


def test_a_change_of_the_rules_has_a_version_of_its_own() -> None:
    """Rows say by which rules they were redacted: what was redacted by others is redacted again before it leaves."""
    names = ("redaction", "secret_rules", "secret_shapes", "secret_encoded", "secret_commands", "secret_cookies",
             "secret_assignments", "private_keys", "personal_rules")  # fmt: skip
    texts = [code(Path(__file__).parents[3] / f"agents/redaction/{name}.py") for name in names]
    found = sha256("\0".join(texts).encode()).hexdigest()[:16]
    assert (redaction.RULES_VERSION, found) == ("4", "04fa352ff206ef98"), (
        "the rules changed: raise RULES_VERSION where they remove something else, and put the new digest here"
    )


def test_the_opening_of_a_rollout_is_redacted_too() -> None:
    """A system prompt or a tool that quotes a key: removed in every row, and counted."""
    key = FORMATS[0].text
    lines = [opening("r1", 1, system_prompt=f"Use {key}.", tools=[{"name": "shell", "description": f"with {key}"}])]
    group = group_of([*lines, *branch("r1", 0, "Done.", passes=True)])
    (row,) = group.sft
    assert key not in row.model_dump_json()
    assert row.messages[0].content == "Use [REDACTED:anthropic_key]."
    assert row.redactions == {"anthropic_key": 2}

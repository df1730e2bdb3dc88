"""Secrets that are known by their form alone: the table of key formats, headers and URLs.

Written from the vendors' published formats and the rules of maintained scanners. The tables are tried in their order,
and within a table the more specific rule comes first. Names that give a secret away (`password = ...`) are in
`secret_assignments`, people in `personal_rules`.
"""

import re

from agents.redaction.secret_encoded import decoded
from agents.redaction.secret_shapes import (
    Rule,
    Span,
    context,
    has_digit,
    is_placeholder,
    is_random,
    is_unbroken,
    random_length,
    starts_word,
    three_classes,
    token,
)

# --- credentials in headers and URLs --------------------------------------------------------------------------------

_TEMPLATE = re.compile(r"[{}$]|%s|\A[*x.]+\Z|\[REDACTED", re.IGNORECASE)


def _url_password(credentials: str) -> bool:
    return not _TEMPLATE.search(credentials.partition(":")[2])


def _is_header_value(value: str) -> bool:
    """Whether this is a credential in a header, and not an example in a manual."""
    return not is_placeholder(value) and (any(map(str.isdigit, value)) or random_length(value) >= 10)


def _is_basic(encoded: str) -> bool:
    """Whether this is `user:password` in base64, and not a word after "basic"."""
    try:
        plain = (decoded(encoded) or b"").decode()
    except UnicodeDecodeError:
        return False
    return ":" in plain and plain.isprintable()


def _telegram(text: str, at: int, floor: int) -> Span | None:
    found = _TELEGRAM.match(text, at)
    digits = len(text[max(floor, at - 11) : at]) - len(text[max(floor, at - 11) : at].rstrip("0123456789"))
    return (at - digits, found.end()) if found and 8 <= digits <= 10 else None


_TELEGRAM = re.compile(r":AA[A-Za-z0-9_\-]{32,36}(?![A-Za-z0-9_\-])")
_TWILIO = re.compile(r"SK[0-9a-f]{32}(?![0-9A-Za-z])")


def _twilio(text: str, at: int, floor: int) -> Span | None:
    found = _TWILIO.match(text, at)
    return found.span() if found and starts_word(text, at, floor) else None


# --- the table ------------------------------------------------------------------------------------------------------

_WORD, _BASE64, _HEX, _ALNUM = r"A-Za-z0-9_\-", "A-Za-z0-9+/=", "0-9a-fA-F", "A-Za-z0-9"

CLOUD_KEYS: tuple[Rule, ...] = (
    token("anthropic_key", "sk-ant-", _WORD, 20, is_unbroken(16)),
    token("openai_key", "sk-proj- sk-svcacct- sk-admin- sk-or-v1-", _WORD, 16, is_unbroken(16), literals="sk-"),
    token("openai_key", "sk-", _WORD, 20, is_unbroken(24)),
    token("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 20),
    token("github_token", "github_pat_", "A-Za-z0-9_", 20, is_unbroken(16)),
    context(
        "aws_access_key",
        "AKIA ASIA ABIA ACCA",
        r"(?P<secret>A[KSBC][IC]A[A-Z0-9]{16})(?![A-Za-z0-9])",
        rest="",
        whole=True,
    ),
    context(
        "aws_secret_key",
        "[REDACTED:aws_access_key]",  # the other half of a pair, as in a credentials file
        r"\[REDACTED:aws_access_key\][^A-Za-z0-9/+]{1,12}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        three_classes,
    ),
    context(
        "jwt",
        "eyJ",
        r"(?P<secret>eyJ[A-Za-z0-9_\-]{10,600}\.\.?[A-Za-z0-9_\-]{10})",
        rest=r"[A-Za-z0-9_\-.]*[A-Za-z0-9_\-]",
        whole=True,
    ),
    token("google_key", "AIza", _WORD, 35),
    token("google_key", "GOCSPX- ya29.", _WORD, 20),
    context(
        "azure_key",
        "AccountKey= SharedAccessKey=",
        r"[A-Za-z]{10,15}=(?P<secret>[A-Za-z0-9+/]{32})",
        rest=f"[{_BASE64}]*",
    ),
    context(
        "signed_url",
        "X-Amz-Signature= X-Amz-Security-Token= X-Goog-Signature= &sig= ?sig=",
        r"[?&A-Za-z\-]{4,22}=(?P<secret>[A-Za-z0-9%+/_\-]{32})",
        rest="[A-Za-z0-9%+/=_-]*",
    ),
)

VENDOR_KEYS: tuple[Rule, ...] = (
    token(
        "slack_token",
        "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xox xapp-",
        _WORD,
        10,
        has_digit,
        literals="xox xapp-",
    ),
    context(
        "slack_webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com\\{0,8}/(?:services|workflows|triggers)\\{0,8}/(?P<secret>[A-Za-z0-9/\\]{20})",
        rest=r"[A-Za-z0-9/\\]*[A-Za-z0-9]",
    ),
    context(
        "discord_webhook",
        "/webhooks/ /webhooks\\",
        r"/webhooks\\{0,8}/(?P<secret>[0-9]{15,22}\\{0,8}/[A-Za-z0-9_\-]{30})",
    ),
    token(
        "stripe_key",
        "sk_live_ pk_live_ rk_live_ sk_test_ pk_test_ rk_test_",
        _ALNUM,
        10,
        has_digit,
        literals="k_live_ k_test_",
    ),
    token("stripe_key", "whsec_", _BASE64, 24),
    token(
        "gitlab_token",
        "glpat- gldt- glptt- glrt- glcbt- glagent- gloas- glsoat-",
        r"A-Za-z0-9_.\-",
        20,
        is_unbroken(16),
    ),
    token("npm_token", "npm_", _ALNUM, 30),
    token("pypi_token", "pypi-", _WORD, 40, three_classes),
    token("huggingface_token", "hf_ api_org_", _ALNUM, 30),
    context("sendgrid_key", "SG.", r"(?P<secret>SG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16})", whole=True),
    Rule("twilio_key", ("SK",), _twilio, literals=("wilio", "WILIO")),
    Rule("telegram_token", (":AA",), _telegram),
    token("vault_token", "hvs. hvb. hvr.", _WORD, 24),
    token("databricks_token", "dapi", "0-9a-f", 32),
)

MORE_VENDOR_KEYS: tuple[Rule, ...] = (
    token("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 32),
    token("shopify_token", "shpat_ shpca_ shppa_ shpss_", _HEX, 32),
    token("grafana_token", "glc_ glsa_", r"A-Za-z0-9_+/=", 32, is_random(12)),
    token("square_token", "sq0atp- sq0csp-", _WORD, 20),
    token("docker_token", "dckr_pat_", _WORD, 20),
    token("sentry_token", "sntrys_ sntryu_", r"A-Za-z0-9_+/=\-", 32),
    token("postman_key", "PMAK-", r"0-9a-f\-", 32),
    token("newrelic_key", "NRAK-", "A-Z0-9", 20),
    token("atlassian_token", "ATATT3", r"A-Za-z0-9_=\-", 40),
    token("notion_token", "ntn_", _ALNUM, 32),
    token("linear_key", "lin_api_", _ALNUM, 32),
    token("figma_token", "figd_", _WORD, 32),
    token("groq_key", "gsk_", _ALNUM, 32),
    token("replicate_token", "r8_", _ALNUM, 32),
    token("model_api_key", "pplx- xai- nvapi- tvly- csk- lsv2_ e2b_", _WORD, 24, is_random(16)),
)

HEADERS_AND_URLS: tuple[Rule, ...] = (
    context(
        "bearer_token",
        "earer EARER",
        r"(?i:earer)[ \t]{1,4}(?P<secret>[A-Za-z0-9._~+/=\-]{12,256})",
        is_unbroken(16),
        r"[A-Za-z0-9._~+/=\-]*",
    ),
    context(
        "basic_auth",
        "asic ASIC :_auth",  # the last in the settings of npm
        r"(?:(?i:asic)[ \t]{1,4}|:_auth[ ]?=[ ]?[\"'\\]{0,3})(?P<secret>[A-Za-z0-9+/_\-]{6,256}={0,2})(?![A-Za-z0-9+/_=\-])",
        _is_basic,
    ),
    context(
        "authorization",
        "uthorization UTHORIZATION",
        r"(?i:uthorization)[\\\"']{0,8}\s{0,3}[:=,]\s{0,3}[\\\"']{0,8}(?:[A-Za-z-]{2,20}[ \t]{1,2})?"
        r"(?P<secret>[A-Za-z0-9._~+/=\-]{8,256})",
        _is_header_value,
        r"[A-Za-z0-9._~+/=\-]*",
    ),
    context(
        "url_credentials",
        ":// :\\/ :\\\\",
        r":(?:\\{0,8}/){2}(?P<secret>[^\s/?#:@\"'<>\\`]{0,128}:(?!\d{1,5}[?#])[^\s/\"'<>\\`]{1,256})@(?=[\w\[{$])",
        _url_password,
        rest="",
    ),
    context(
        "url_credentials",
        ":// :\\/ :\\\\",
        r":(?:\\{0,8}/){2}(?P<secret>[A-Za-z0-9_.~%\-]{16,256})@(?=\w)",
        is_random(12),
        rest="",
    ),
)

NAMED_KEYS: tuple[Rule, ...] = (
    context(
        "aws_secret_key",
        "ecret ECRET",
        r"(?i:ecret[ _-]?(?:access)?[ _-]?key)(?:[ \t]?\[None\])?[^A-Za-z0-9/+\n]{1,12}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        three_classes,
    ),
)
"""Keys that are recognised only with their name; the name is in many texts, so these run with the other names."""

"""Made-up secrets, and things that look like secrets and are none.

The secrets are put together when they are needed: none of them is written out here, and none was ever valid.
"""

import json
from base64 import b64encode
from hashlib import sha256
from typing import NamedTuple

DIGITS = "0123456789"
HEX = "0123456789abcdef"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = UPPER.lower()
ALNUM = UPPER + LOWER + DIGITS
WORD = ALNUM + "_-"
BASE64 = ALNUM + "+/"
BASE32 = UPPER + "234567"


class Secret(NamedTuple):
    """A secret, and what it must be counted as."""

    kind: str
    text: str


class Found(NamedTuple):
    """A text with a secret in it."""

    kind: str
    secret: str
    text: str


def fake(length: int, alphabet: str = ALNUM, seed: str = "") -> str:
    """Characters that look random and are the same in every run."""
    stream = b"".join(sha256(f"{seed}/{length}/{alphabet}/{i}".encode()).digest() for i in range(length // 16 + 1))
    return "".join(alphabet[byte % len(alphabet)] for byte in stream[:length])


def pem(label: str = "RSA ", lines: int = 6, line_end: str = "\n") -> str:
    """A private key block."""
    body = [fake(64, BASE64, f"{label}{i}") for i in range(lines)] + [fake(22, BASE64, label) + "=="]
    return line_end.join([f"-----BEGIN {label}PRIVATE " + "KEY-----", *body, f"-----END {label}PRIVATE " + "KEY-----"])


def jwt(parts: int = 3) -> str:
    """A JSON web token."""
    return ".".join(["eyJ" + fake(33, WORD, "head"), "eyJ" + fake(80, WORD, "body"), fake(43, WORD, "sign")][:parts])


FORMATS: tuple[Secret, ...] = (
    Secret("anthropic_key", "sk-" + "ant-api03-" + fake(93, WORD) + "AA"),
    Secret("anthropic_key", "sk-" + "ant-admin01-" + fake(86, WORD)),
    Secret("openai_key", "sk-" + "proj-" + fake(74, WORD) + "T3Blbk" + "FJ" + fake(74, WORD)),
    Secret("openai_key", "sk-" + fake(20) + "T3Blbk" + "FJ" + fake(20)),
    Secret("openai_key", "sk-" + "svcacct-" + fake(60, WORD)),
    Secret("openai_key", "sk-" + "or-v1-" + fake(64, HEX)),
    Secret("openai_key", "sk-" + fake(32, HEX)),
    Secret("openai_key", "sk-" + "lf-" + "-".join(fake(n, HEX) for n in (8, 4, 4, 4, 12))),
    Secret("openai_key", "sk-" + "proj-" + "abcdefghijklmnop" + "1234"),
    Secret("openai_key", "sk-" + "abcdefghijklmnopqrstuvwx" + "yz"),
    Secret("github_token", "gh" + "p_" + fake(36)),
    Secret("github_token", "gh" + "o_" + fake(36)),
    Secret("github_token", "gh" + "u_" + fake(36)),
    Secret("github_token", "gh" + "s_" + fake(36)),
    Secret("github_token", "gh" + "r_" + fake(76)),
    Secret("github_token", "github_" + "pat_" + fake(22) + "_" + fake(59)),
    Secret("aws_access_key", "AK" + "IA" + fake(16, BASE32)),
    Secret("aws_access_key", "AS" + "IA" + fake(16, BASE32)),
    Secret("jwt", jwt()),
    Secret("jwt", jwt(2)),
    Secret("google_key", "AI" + "za" + fake(35, WORD)),
    Secret("google_key", "GOC" + "SPX-" + fake(28, WORD)),
    Secret("google_key", "ya" + "29." + fake(120, WORD)),
    Secret("slack_token", "xox" + "b-" + fake(12, DIGITS) + "-" + fake(13, DIGITS) + "-" + fake(24)),
    Secret("slack_token", "xox" + "p-" + fake(11, DIGITS) + "-" + fake(11, DIGITS) + "-" + fake(32, HEX)),
    Secret("slack_token", "xapp-" + "1-A" + fake(10, UPPER) + "-" + fake(13, DIGITS) + "-" + fake(64, HEX)),
    Secret("stripe_key", "sk_" + "live_" + fake(24)),
    Secret("stripe_key", "pk_" + "live_" + fake(99)),
    Secret("stripe_key", "rk_" + "test_" + fake(24)),
    Secret("stripe_key", "whs" + "ec_" + fake(32)),
    Secret("gitlab_token", "gl" + "pat-" + fake(20, WORD)),
    Secret("gitlab_token", "gl" + "ptt-" + fake(40, HEX)),
    Secret("npm_token", "np" + "m_" + fake(36)),
    Secret("pypi_token", "py" + "pi-AgEIcHlwaS5vcmc" + fake(120, WORD)),
    Secret("huggingface_token", "h" + "f_" + fake(34, UPPER + LOWER)),
    Secret("sendgrid_key", "S" + "G." + fake(22, WORD) + "." + fake(43, WORD)),
    Secret("telegram_token", fake(9, "123456789") + ":A" + "A" + fake(33, WORD)),
    Secret("vault_token", "hv" + "s." + fake(90, WORD)),
    Secret("databricks_token", "dap" + "i" + fake(32, HEX)),
    Secret("digitalocean_token", "do" + "p_v1_" + fake(64, HEX)),
    Secret("shopify_token", "shp" + "at_" + fake(32, HEX)),
    Secret("grafana_token", "gl" + "sa_" + fake(32) + "_" + fake(8, HEX)),
    Secret("square_token", "sq0" + "csp-" + fake(43, WORD)),
    Secret("docker_token", "dckr_" + "pat_" + fake(27, WORD)),
    Secret("sentry_token", "snt" + "rys_" + fake(80)),
    Secret("postman_key", "PM" + "AK-" + fake(24, HEX) + "-" + fake(34, HEX)),
    Secret("newrelic_key", "NR" + "AK-" + fake(27, UPPER + DIGITS)),
    Secret("atlassian_token", "ATA" + "TT3" + fake(180, WORD)),
    Secret("linear_key", "lin_" + "api_" + fake(40)),
    Secret("notion_token", "nt" + "n_" + fake(46)),
    Secret("figma_token", "fi" + "gd_" + fake(40, WORD)),
    Secret("groq_key", "gs" + "k_" + fake(52)),
    Secret("replicate_token", "r" + "8_" + fake(37)),
    Secret("model_api_key", "xa" + "i-" + fake(80)),
    Secret("model_api_key", "e2" + "b_" + fake(40, HEX)),
    Secret("private_key", "AGE-SECRET-" + "KEY-1" + fake(58, UPPER + DIGITS)),
    Secret("private_key", pem()),
    Secret("private_key", pem("OPENSSH ")),
    Secret("private_key", pem("")),
)
"""Secrets that their form gives away, wherever they stand."""

_AWS = fake(38, BASE64, "aws") + "a1"
_KEY = fake(32, ALNUM, "key")
_HEX = fake(40, HEX, "hex")
_PASSWORD = "Tr0ub" + "4dor&3"
_WEAK = "hunt" + "er42"
_AZURE = fake(86, BASE64, "azure") + "=="
_HOOK = "T" + fake(10, UPPER) + "/B" + fake(10, UPPER) + "/" + fake(24)
_BASIC = "dXNlcjpz" + "M2NyM3QhcHc="
_UUID = "-".join(fake(n, HEX, "uuid") for n in (8, 4, 4, 4, 12))
_WORDS = "opensesame" + "please"
_SESSION = fake(32, LOWER + DIGITS, "session")
_SIGNED = "s%3A" + fake(32, WORD, "signed") + "." + fake(43, ALNUM, "signature")


def encoded(text: str) -> str:
    """Base64."""
    return b64encode(text.encode()).decode()


_KEY_64 = encoded(pem())
_KEY_64_LINES = "\n".join(_KEY_64[i : i + 76] for i in range(0, len(_KEY_64), 76))
_TOKEN_64 = encoded(FORMATS[10].text)
_WEAK_64 = encoded(_WEAK)
_MANIFEST = f"apiVersion: v1\ndata:\n  password: {_WEAK_64}\n  user: {encoded('deploy-user-7')}\nkind: Secret\nmetadata:\n  name: db\n"

IN_CONTEXT: tuple[Found, ...] = (
    Found("aws_secret_key", _AWS, f"aws_secret_access_key = {_AWS}\nregion = us-east-1"),
    Found("aws_secret_key", _AWS, f'{{"SecretAccessKey": "{_AWS}"}}'),
    Found("aws_secret_key", _AWS, f"AWS Secret Access Key [None]: {_AWS}"),
    Found("aws_secret_key", _AWS, f"{FORMATS[16].text},{_AWS}"),
    Found("azure_key", _AZURE, f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={_AZURE};EndpointSuffix=core"),
    Found("slack_webhook", _HOOK, f"curl -X POST https://hooks.slack.com/services/{_HOOK} -d @body.json"),
    Found("slack_webhook", _HOOK, "url: https:\\/\\/hooks.slack.com\\/services\\/" + _HOOK.replace("/", "\\/")),
    Found(
        "discord_webhook", fake(68, WORD), f"https://discord.com/api/webhooks/{fake(18, '123456789')}/{fake(68, WORD)}"
    ),
    Found("twilio_key", "SK" + fake(32, HEX), f"TWILIO_SID=SK{fake(32, HEX)}"),
    Found(
        "signed_url", fake(64, HEX), f"https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={fake(64, HEX)}"
    ),
    Found("signed_url", fake(43) + "%3D", f"https://x.blob.core.windows.net/c/b?sv=2022-11-02&sr=b&sig={fake(43)}%3D"),
    Found("bearer_token", _KEY, f"Authorization: Bearer {_KEY}"),
    Found("bearer_token", _HEX, f"curl -H 'authorization: bearer {_HEX}' https://api.test/v1"),
    Found("bearer_token", _KEY, f'{{\\"headers\\": {{\\"Authorization\\": \\"Bearer {_KEY}\\"}}}}'),
    Found("bearer_token", "abcdefghijklmnop" + "1234", "Authorization: Bearer abcdefghijklmnop" + "1234"),
    Found("authorization", "session" + "token9", "authorization: Bearer session" + "token9"),
    Found("basic_auth", _BASIC, f"Authorization: Basic {_BASIC}"),
    Found("basic_auth", _BASIC, f'headers = {{"Authorization": "Basic {_BASIC}"}}'),
    Found("authorization", _KEY, f"Authorization: ApiKey {_KEY}"),
    Found("authorization", _HEX, f'"authorization": "{_HEX}"'),
    Found("url_credentials", _PASSWORD, f"postgres://app:{_PASSWORD}@db.internal:5432/orders"),
    Found("url_credentials", _WEAK, f"git clone https://alice:{_WEAK}@git.corp.test/team/repo.git"),
    Found("url_credentials", "p@ssw0rd", "redis://:p@ssw0rd@cache:6379/0"),
    Found("url_credentials", _KEY, f"https://{_KEY}@o123.ingest.sentry.io/45"),
    Found("url_credentials", _WEAK, f'"dsn": "mysql:\\/\\/root:{_WEAK}@127.0.0.1\\/db"'),
    Found("assigned_secret", _PASSWORD, f'password = "{_PASSWORD}"'),
    Found("assigned_secret", _WEAK, f"password: {_WEAK}"),
    Found("assigned_secret", _WEAK, f"The password is {_WEAK}."),
    Found("assigned_secret", _PASSWORD, f"DB_PASSWORD={_PASSWORD}"),
    Found("assigned_secret", _PASSWORD, f"PGPASSWORD={_PASSWORD} psql -h db"),
    Found("assigned_secret", "correcthorse" + "battery7", "MYSQL_ROOT_PASSWORD=correcthorse" + "battery7"),
    Found("assigned_secret", _WEAK, f"mysql --user root --password {_WEAK} -e 'select 1'"),
    Found("assigned_secret", _KEY, f"deploy --api-key={_KEY} --env prod"),
    Found("assigned_secret", _KEY, f'{{"api_key": "{_KEY}", "region": "eu"}}'),
    Found("assigned_secret", _KEY, f'{{\\"apiKey\\": \\"{_KEY}\\"}}'),
    Found("assigned_secret", _WEAK, f'{{\\"password\\": \\"{_WEAK}\\"}}'),
    Found("assigned_secret", _PASSWORD, f'"{{\\\\\\"password\\\\\\": \\\\\\"{_PASSWORD}\\\\\\"}}"'),
    Found("assigned_secret", _HEX, f"export GH_TOKEN={_HEX}"),
    Found("assigned_secret", _HEX, f"https://api.test/v1/items?page=2&access_token={_HEX}&limit=5"),
    Found("assigned_secret", _KEY, f"client_secret: '{_KEY}'"),
    Found("assigned_secret", _UUID, f'HEROKU_API_KEY = "{_UUID}"'),
    Found("assigned_secret", _KEY, f'api_key: str = "{_KEY}"'),
    Found("assigned_secret", _KEY, f'os.environ["SECRET_KEY"] = "{_KEY}"'),
    Found("assigned_secret", _KEY, f'os.environ.setdefault("API_TOKEN", "{_KEY}")'),
    Found("assigned_secret", _KEY, f"x-api-key: {_KEY}"),
    Found("assigned_secret", _WEAK, f"<password>{_WEAK}</password>"),
    Found("assigned_secret", _KEY, f'{{"name": "API_KEY", "value": "{_KEY}"}}'),
    Found("assigned_secret", _WEAK, f"machine api.test login deploy password {_WEAK}"),
    Found("assigned_secret", _KEY, f"//npm.corp.example/:_authToken={_KEY}"),
    Found("assigned_secret", "cGFzc3dv" + "cmQxMjM0", "data:\n  password: cGFzc3dv" + "cmQxMjM0\n"),
    Found("assigned_secret", "$2b$12$" + fake(53), f'"password": "$2b$12${fake(53)}"'),
    Found("assigned_secret", _KEY * 12, f'token = "{_KEY * 12}"'),
    Found("assigned_secret", "P@ssw" + "0rd!", "Server=db;User Id=sa;Password=P@ssw" + "0rd!;Encrypt=true"),
    Found("assigned_secret", "N0t-My" + "+Real#1", "password = N0t-My" + "+Real#1"),
    Found("assigned_secret", "$x(7h!k2^" + "@8s=9f&b0q", "SECRET_KEY = 'django-insecure-$x(7h!k2^" + "@8s=9f&b0q'"),
    Found("command_password", f"bob:{_WEAK}", f"curl -s -u bob:{_WEAK} https://api.test/items"),
    Found("command_password", f"bob:{_WEAK}", f"curl -sSu bob:{_WEAK} https://api.test/items"),
    Found(
        "command_password", f"bob:{_WEAK}", f"curl -X POST -d 'a=1;b=2|3' --user 'bob:{_WEAK}' https://api.test/items"
    ),
    Found("command_password", f"bob:{_PASSWORD}", f'curl --user "bob:{_PASSWORD}" https://api.test/items'),
    Found("command_password", _KEY, f"curl https://api.test/v1/charges -u {_KEY}:"),
    Found("command_password", f"CORP\\bob:{_WEAK}", f"curl --proxy-user 'CORP\\bob:{_WEAK}' https://api.test"),
    Found("command_password", _PASSWORD, f"sshpass -p '{_PASSWORD}' ssh deploy@10.0.0.7"),
    Found("command_password", _WORDS, f"sshpass -p{_WORDS} scp -P 2222 a.txt deploy@10.0.0.7:"),
    Found("assigned_secret", _PASSWORD, f"SSHPASS='{_PASSWORD}' sshpass -e ssh -p 2222 deploy@10.0.0.7"),
    Found("assigned_secret", _WEAK, f"export SSHPASS={_WEAK}"),
    Found("command_password", _WEAK, f"docker login -u bob -p {_WEAK} registry.corp.test"),
    Found("command_password", _WORDS, f"docker login registry.corp.test --username bob --password {_WORDS}"),
    Found("command_password", _WORDS, f"docker login --username=bob --password={_WORDS}"),
    Found("command_password", _PASSWORD, f'sudo docker login -u "$USER" -p "{_PASSWORD}" && docker push x'),
    Found("command_password", _WEAK, f"docker login \\\n  --username bob \\\n  -p {_WEAK}"),
    Found("command_password", _WEAK, f"podman login quay.io -u=bob -p={_WEAK}"),
    Found("command_password", _WEAK, f"helm registry login reg.corp.test -u bob -p{_WEAK}"),
    Found("command_password", _WEAK, f'subprocess.run(["docker", "login", "-u", "bob", "-p", "{_WEAK}"])'),
    Found("command_password", _WORDS, f"echo {_WORDS} | docker login -u bob --password-stdin"),
    Found("command_password", _WEAK, f"echo '{_WEAK}' | sudo -S apt-get install -y jq"),
    Found("command_password", _PASSWORD, f'echo "{_PASSWORD}" | sudo -S id'),
    Found("command_password", _WEAK, f"printf '{_WEAK}\\n' | sudo -S -p '' id"),
    Found("command_password", _WORDS, f"mysql -uroot -p{_WORDS} -e 'show tables' shop"),
    Found("command_password", _PASSWORD, f"mysqldump -h db -u root -p'{_PASSWORD}' shop > dump.sql"),
    Found("command_password", _WORDS, f"mysqladmin --user=root --password={_WORDS} ping"),
    Found("command_password", _WEAK, f'docker exec shop-db sh -c "mysql -uroot -p{_WEAK}" -p 80:80'),
    Found("command_password", _PASSWORD, f'test: ["CMD", "mysqladmin", "ping", "-p{_PASSWORD}"]'),
    Found("command_password", _WEAK, f"/usr/bin/mariadb-dump -u root -p{_WEAK} shop"),
    Found("command_password", _WEAK, f"redis-cli -h cache -p 6379 -a {_WEAK} ping"),
    Found("command_password", _WORDS, f"docker exec cache redis-cli --pass {_WORDS} keys '*'"),
    Found("assigned_secret", _WEAK, f"REDISCLI_AUTH={_WEAK} redis-cli ping"),
    Found("command_password", _WORDS, f'psql "host=db user=app password={_WORDS} dbname=shop" -c "select 1"'),
    Found("command_password", _WORDS, f"psql password={_WORDS}"),
    Found("url_credentials", f"app:{_WORDS}", f"psql postgresql://app:{_WORDS}@db:5432/shop?sslmode=require"),
    Found("url_credentials", _HEX, f"git clone https://x-access-token:{_HEX}@github.com/org/repo.git"),
    Found("session_cookie", _SESSION, f"Cookie: theme=dark; sessionid={_SESSION}; lang=en"),
    Found(
        "session_cookie",
        _SIGNED,
        f"< Set-Cookie: connect.sid={_SIGNED}; Path=/; Expires=Wed, 21 Oct 2026 07:28:00 GMT; HttpOnly",
    ),
    Found("session_cookie", _SESSION, f"curl -s -b 'PHPSESSID={_SESSION}' https://shop.test/cart"),
    Found("session_cookie", _SESSION, f"curl --cookie csrftoken={_SESSION} https://shop.test/cart"),
    Found("session_cookie", _UUID, f'requests.get(url, headers={{"Cookie": "JSESSIONID={_UUID}", "Accept": "*/*"}})'),
    Found("session_cookie", _SESSION, f"requests.get(url, cookies={{'lang': 'en', 'auth_token': '{_SESSION}'}})"),
    Found("session_cookie", _KEY * 2, f"set-cookie: AWSALB={_KEY * 2}; Path=/"),
    Found("session_cookie", _SESSION, f'{{\\"set-cookie\\": [\\"XSRF-TOKEN={_SESSION}; path=/\\"]}}'),
    Found("session_cookie", _SESSION, f"'set-cookie': [ 'lang=en; path=/', 'sid={_SESSION}; path=/' ]"),
    Found(
        "session_cookie",
        _SESSION,
        json.dumps({"cookies": [{"name": "lang", "value": "en"}, {"name": "sid", "value": _SESSION}]}, indent=2),
    ),
    Found("private_key", _KEY_64, f"client-data: {_KEY_64}"),
    Found("private_key", _KEY_64_LINES[80:150], f"$ base64 id_rsa\n{_KEY_64_LINES}\n$ ls"),
    Found("encoded_token", _TOKEN_64, f"echo {_TOKEN_64} | base64 -d"),
    Found("encoded_token", _TOKEN_64, f'{{"payload": "{_TOKEN_64}"}}'),
    Found("kubernetes_secret", _WEAK_64, _MANIFEST),
    Found(
        "kubernetes_secret",
        _WEAK_64,
        f"kind: Secret\nmetadata:\n  name: db\ntype: Opaque\ndata:\n  # encoded\n  db.conf: {_WEAK_64}",
    ),
    Found("kubernetes_secret", _WEAK_64, json.dumps({"apiVersion": "v1", "data": {"n": _WEAK_64}, "kind": "Secret"})),
    Found("kubernetes_secret", _WEAK_64, json.dumps({"kind": "Secret", "data": {"n": _WEAK_64}}, indent=2)),
    Found("basic_auth", _BASIC, f"//npm.corp.example/:_auth={_BASIC}"),
    Found("url_credentials", "p#ss?" + "w0rd", "amqp://svc:p#ss?" + "w0rd@mq:5672/"),
    Found("email", "alice.smith@example.com", "Author: Alice Smith <alice.smith@example.com>"),
    Found("email", "bob+ci@mail.corp.co.uk", "mail bob+ci@mail.corp.co.uk about it."),
    Found("email", "carol@163.com", '{"to": "x\\ncarol@163.com"}'),
    Found("email", "müller@exämple.de", "Von: müller@exämple.de"),
    Found("email", "dave%40example.org", "https://x.test/login?user=dave%40example.org"),
    Found("email", "1234+erin@users.noreply.github.com", "Co-authored-by: E <1234+erin@users.noreply.github.com>"),
    Found("home_directory", "frank", "cd /home/frank/projects/app && make"),
    Found("home_directory", "grace.h", "/Users/grace.h/Library/Caches"),
    Found("home_directory", "heidi", "C:\\Users\\heidi\\AppData\\Local"),
    Found("home_directory", "Ivan Petrov", "C:\\Users\\Ivan Petrov\\Desktop"),
    Found("home_directory", "judy", '{"cwd": "C:\\\\Users\\\\judy\\\\repo"}'),
    Found("home_directory", "mallory", "error:\\n/home/mallory/x.py:12"),
    Found("home_directory", "niaj", "gcc -I/home/niaj/include -c a.c"),
    Found("home_directory", "olivia", "file:///Users/olivia/notes.md"),
    Found("home_directory", "peggy", "/mnt/c/Users/peggy/src"),
)
"""Secrets and personal data that only what surrounds them gives away."""

CUT_KEYS: tuple[str, ...] = (
    pem()[:300],
    pem()[:60],
    pem()[150:],
    pem(line_end="\\n"),
    pem(line_end="\\n")[:300],
    pem(line_end="\\n")[150:],
    pem(line_end="\\r\\n"),
    pem(line_end='\\n" +\n    "'),
    pem("PGP ").replace("KEY-----", "KEY BLOCK-----"),
    pem().replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0011223344556677\n\n", 1)[
        :260
    ],
)
"""Private keys that lost a part, or whose line ends are escaped."""

LOOK_ALIKES: tuple[str, ...] = (
    "commit 3f786850e387550fdab836ed7e6dc881de23001b (HEAD -> main)",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "md5 d41d8cd98f00b204e9800998ecf8427e  empty.txt",
    "request 550e8400-e29b-41d4-a716-446655440000 took 12 ms",
    "pip install numpy==2.4.0 ruff>=0.17,<1 --no-deps",
    "node v20.11.1, npm 10.2.4-beta.3+build.77",
    "listening on http://127.0.0.1:8080 and http://localhost:3000/",
    "[::1]:5432 and 0.0.0.0:9092",
    "order 1234567890, invoice 9876543210",
    "call +49 (30) 1234-5678 or 555-0199",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "branch task-sk-foo-bar-baz-qux-quux-corge",
    "a risk-based-approach-to-authentication-and-authorization",
    "monkey_patch(module, 'attribute')",
    "git clone git@github.com:org/repo.git",
    "git remote add origin ssh://git@gitlab.example.com/team/app.git",
    "@property\ndef name(self): ...",
    "@app.route('/users')\n@pytest.mark.parametrize('x', [1])",
    "@@ -1,2 +1,3 @@\n+@pytest.fixture\n+@app.get\n def f(): ...",
    "npm install react@18.2.0 @types/node@20.1.0 lodash@4.x",
    "uses: actions/checkout@v4",
    "foo@1.0.0-beta.rc left-pad@latest",
    "y = x@w.T + b; z = q@k.transpose(1, 2); u = a@self.weight",
    "systemctl status getty@tty1.service",
    "background: url(icon@2x.png)",
    "password = get_password()",
    "password = getpass.getpass('Password: ')",
    "token = None",
    "api_key: str",
    "api_key: str | None = None",
    "def login(user: str, password: str, token: Optional[str] = None) -> bool:",
    "password = os.environ['DB_PASSWORD']",
    "const token = process.env.GITHUB_TOKEN;",
    'password = "${DB_PASSWORD}"',
    "API_KEY=$OPENAI_API_KEY ./run.sh",
    "PASSWORD=changeme",
    'api_key = "YOUR_API_KEY_HERE"',
    'token = "<your-token>"',
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "password: '********'",
    'self.token = config["token"]',
    "connect(user=user1, password=password1, token=token2)",
    "secret = client.get_secret_value(SecretId='prod/db2')",
    "max_tokens=4096, token_count: 1234567",
    '"next_page_token": "CAUQAA1b2c3d4e5f6a7b8c9d0"',
    'eos_token = "<|endoftext|>", pad_token="[PAD]"',
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    'secret_name = "prod-db-credentials-2024"',
    "password_hash_algorithm = sha256",
    'primary_key = "a1b2c3d4e5f6a7b8c9d0"',
    "public_key_fingerprint: 16:27:ac:a5:76:28:2d:36",
    '"password": "must be at least 8 characters"',
    "'password' => 'required|string|min:8|confirmed'",
    '<input type="password" name="user_pass1">',
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "Use Basic authentication or Bearer authentication with the API.",
    "The basic idea: the bearer of this letter",
    "https://user:${PASSWORD}@host/ and postgres://{user}:{password}@{host}/db",
    "see https://example.com/home/dashboard and /Users/{id}",
    "import x from 'src/home/components/header'",
    "cd /root/.cache && ls /home",
    "/home/user/app/main.py and /home/runner/work/repo",
    "GET /api/Users/123/orders",
    "echo $HOME ~/projects",
    'if text.startswith("-----BEGIN RSA PRIVATE KEY-----"):',
    '"-----BEGIN PRIVATE KEY-----\\n" + key + "\\n-----END PRIVATE KEY-----"',
    "expected -----BEGIN PRIVATE KEY-----\nError: no key in the file\ndone",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIDXTCCAkWgAwIBAgIJAKL0UG+mRkSvMA0GCSqGSIb3\n-----END CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ1aWxkLWtleS1mb3ItdGVzdHM deploy",
    "hf_hub_download(repo_id='org/model'), npm_config_registry, npm_lifecycle_event",
    "sk-container-id-12 sk-toggleable__control sk-estimator-doc-link",
    "pypi-simple-repository-index-mirror-configuration-page",
    "the ghp_ prefix marks a classic token; glpat- one of GitLab, AKIA one of AWS",
    "ASIA and AKIAK; eyJ is how a JWT begins",
    "keyboard = Keyboard(layout='qwertz105key'); keyword: foo1bar2",
    "SELECT * FROM tokens WHERE token_id = 42 AND secret IS NULL",
    "token = tokens[i]; key = (user_id, token)",
    "password: string;  // at least 8 characters",
    "Secret: something that must not be told",
    "mailto:noreply@example.com",
    "Co-Authored-By: Bot <noreply@anthropic.com>",
    "def test_sk_live_mode(): pass",
    "lat/lon 52.5200,13.4050; 2024-05-01T12:00:00Z; 1_000_000",
    "Kubernetes secretKeyRef: name: db-creds key: password",
    "expected token 'IDENTIFIER2', got token: SEMICOLON",
    "assert response.json()['token'] == token_from_login_v2",
    "docker run -d --name mysql -p 3306:3306 -e MYSQL_ALLOW_EMPTY_PASSWORD=1 mysql:8",
    "docker run --name mysql -p3306:3306 mysql && docker run -p 80:80 nginx",
    "docker login registry.example.com && docker run -p 8080:80 -v /tmp:/tmp app",
    'docker login -u "$DOCKER_USER" -p "$DOCKER_PASS" quay.io',
    "docker login -u ${USER} -p ${PASS}; docker login -u x -p <token>; docker login -u x -p ****",
    "docker login -u AWS -p $(aws ecr get-login-password --region eu-west-1) $ECR_URI",
    "docker login -u USERNAME -p PASSWORD and docker login -u name --password DOCKER_HUB_TOKEN",
    "aws ecr get-login-password | docker login --username AWS --password-stdin 123456789012.dkr.ecr.amazonaws.com",
    'echo "$DOCKER_PASSWORD" | docker login -u bot --password-stdin; echo $pw | sudo -S ls',
    "  -p, --password string   Password\n      --password-stdin   Take the password from stdin",
    "docker compose exec app login -p 8080; login -p; az account list -p 1",
    "mysql -u root -p shop < dump.sql",
    "mysql -h db -P 3306 -u root -p -e 'select 1'",
    "mysql --protocol=tcp --port=3306 --pager=less; mysql -port 3306",
    "mysqldump -p$MYSQL_ROOT_PASSWORD shop; mysqladmin ping -p$$MYSQL_ROOT_PASSWORD; mysql -p${PASS} -p{password} -p%s -p<pw>",
    'os.system(f"mysql -u{user} -p{password} {db}"); cmd = "mysql -p" + password',
    "exec('mysql -u root -p'.$pass.' shop')",
    "pip install mysql-connector-python mysqlclient && mkdir -p mysql/data && cp -pr mysql backup",
    "mysql://localhost/shop and jdbc:mysql://db:3306/shop?useSSL=false",
    "ssh -p 2222 host; scp -P 2222 a b; mkdir -p a/b; nmap -p 22,80 host; psql -p 5432 -U app shop",
    "sshpass -e ssh -p 2222 host; sshpass -f secret.txt ssh -p 2222 host; sshpass -p $SSH_PW ssh host; sshpass -p password ssh h",
    "export SSHPASS=$DEPLOY_PASSWORD; SSHPASS=${PW} REDISCLI_AUTH=$REDIS_PASSWORD",
    "curl -u $USER:$PASS https://x.test; curl -u user:${TOKEN} x; curl --user user:<password> x; curl -u name:password x",
    "curl -u bob https://x.test; curl -su: https://x.test; curl --user-agent a:b -o x:y https://x.test",
    "curl -X POST https://x.test/login -d user=bob; date -u +%H:%M:%S",
    "redis-cli -h cache -p 6379 ping; redis-cli -a $REDIS_PASSWORD; redis-cli -a YOUR_PASSWORD; redis-cli --askpass",
    'psql "host=db user=app password=$PGPASS"; psql -d "password=<password>"; psql -c "alter role x password null"',
    "git clone https://$TOKEN@github.com/o/r; git clone https://user:${TOKEN}@host/r; git clone https://<token>@host/r",
    "Set-Cookie: session=abc123; Path=/; HttpOnly; SameSite=Lax; Max-Age=604800",
    "Cookie: sessionid=<your session>; csrftoken=${CSRF}; token=...; auth=********",
    "Cookie: theme=dark; _ga=GA1.2.1234567890.1234567890; cookie_consent=accepted; lang=en-GB",
    'HTTP/1.1 200 OK\nSet-Cookie: lang=en\nETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"\nX-Request-Id: 4f1c1d2e9a7b4c3d',
    '{"Cookie": "theme=dark", "ETag": "33a64df551425fcc55e4d42a148795d9f25f89d4"}',
    '{"cookies": {"lang": "en"}, "etag": "33a64df551425fcc55e4d42a148795d9f25f89d4"}',
    'cookies = {"sessionid": session_id}; response.cookies["csrftoken"]; document.cookie = "lang=en"; expires = a1b2',
    "curl -b cookies.txt -c cookies.txt https://x.test; wget --header 'Cookie: oraclelicense=accept-securebackup-cookie'",
    "session_id: 550e8400-e29b-41d4-a716-446655440000 trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
    "kind: ConfigMap\napiVersion: v1\ndata:\n  blob: aHVudGVyNDI=\n",
    "apiVersion: v1\nkind: ConfigMap\ndata:\n  blob: aHVudGVyNDI=\n---\nkind: Secret\nmetadata:\n  name: dbpass12\ntype: Opaque\n",
    "kind: Secret\nmetadata:\n  name: abcdefgh\ndata:\n  password: $PASSWORD\n  tls.key: <key>\n  user: # encoded\nspec:\n  name: abcdefgh",
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURYVENDQWtXZ0F3SUJBZ0lKQUtMMFVHK21Sa1N2TUEwR0NTcUdTSWIz",
    "Z2hwXyBpcyBhIHByZWZpeA== and QUtJQSBpcyBvbmU= and c2stYW50LWlz",
)
"""Text that must come back byte for byte."""

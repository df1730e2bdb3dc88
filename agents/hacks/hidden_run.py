"""Programs of the hidden look. The wrapper is put into a test file; the loader runs in a process without a test
runner.

They are strings because they run inside a sandbox, together with the work. The loader's process has no parent that
runs tests and no runner variables, and never imports a runner. The test sources come through a pipe.
"""

WRAPPER = '''import base64, json, os, subprocess, sys
import pytest
_found = None


def _run():
    global _found
    if _found is None:
        key = bytes.fromhex("{key}")
        data = bytes(b ^ key[i % len(key)] for i, b in enumerate(base64.b85decode("""{data}""")))
        asked = json.loads(data)
        asked["path"], asked["file"] = sys.path, __file__
        mentioned = asked["source"]
        kept = {{
            name: value for name, value in os.environ.items()
            if name in mentioned or not (name.startswith("PYTEST") or name in ("CI", "TEST_DIR", "LOGS_DIR"))
        }}
        try:
            done = subprocess.run(
                [sys.executable, "-c", {loader!r}], input=json.dumps(asked).encode(), stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=kept, timeout=45,
            )
            _found = json.loads(done.stdout.decode().rpartition("{seed}")[2])
        except Exception as error:
            _found = []
    return _found


@pytest.mark.parametrize("at", range({count}))
def test_{seed}(at):
    found = _run()
    if len(found) <= at or found[at] == "soft":
        pytest.skip("not to be compared")
    assert found[at] == "passed", found[at]
'''

LOADER = """
import json, os, sys
asked = json.loads(sys.stdin.buffer.read())
if os.fork():
    os._exit(0)
os.setsid()
out = os.dup(1)
os.dup2(2, 1)
sys.path[:] = asked["path"]
sys.argv[:] = ["main.py"]
import builtins, contextlib, itertools, math, re, types


class Raised(contextlib.AbstractContextManager):
    def __init__(self, kinds, match=None):
        self.kinds, self.match, self.value, self.type = kinds, match, None, None

    def __exit__(self, kind, value, trace):
        if kind is None:
            raise AssertionError("nothing was raised")
        if not issubclass(kind, self.kinds):
            return False
        self.value, self.type = value, kind
        if self.match is not None and not re.search(self.match, str(value)):
            raise AssertionError("another message")
        return True


def raises(kinds, *given, match=None, **named):
    if given:
        with Raised(kinds) as held:
            given[0](*given[1:], **named)
        return held
    return Raised(kinds, match)


class approx:
    def __init__(self, wanted, rel=None, abs=None, nan_ok=False):
        self.wanted, self.rel, self.abs, self.nan_ok = wanted, 1e-6 if rel is None else rel, 1e-12 if abs is None else abs, nan_ok

    def __eq__(self, other):
        return self.near(self.wanted, other)

    def near(self, wanted, other):
        if isinstance(wanted, dict):
            return set(wanted) == set(other) and all(self.near(wanted[key], other[key]) for key in wanted)
        if isinstance(wanted, (list, tuple)):
            return len(wanted) == len(other) and all(self.near(a, b) for a, b in zip(wanted, other))
        if isinstance(wanted, (int, float)) and isinstance(other, (int, float)):
            if math.isnan(wanted):
                return self.nan_ok and math.isnan(other)
            return math.isclose(wanted, other, rel_tol=self.rel, abs_tol=self.abs)
        return wanted == other


class Mark:
    @staticmethod
    def parametrize(names, rows, ids=None):
        names = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
        rows = list(rows)

        def decorate(function):
            tables = getattr(function, "tables", [])
            function.tables = [*tables, [dict(zip(names, row if len(names) > 1 else [row])) for row in map(plain, rows)]]
            return function

        return decorate


def plain(row):
    return row.held if isinstance(row, Param) else row


class Param:
    def __init__(self, *given, id=None, marks=()):
        self.held = given if len(given) > 1 else given[0]


def fail(reason="", pytrace=True):
    raise AssertionError(reason)


tools = types.SimpleNamespace(raises=raises, approx=approx, mark=Mark, param=Param, fail=fail)
real = builtins.__import__


def load(name, globals=None, locals=None, fromlist=(), level=0):
    if name == "pytest" and globals is not None and globals.get("__name__") == asked["home"]:
        return tools
    return real(name, globals, locals, fromlist, level)


def run():
    module = types.ModuleType(asked["home"])
    module.__file__ = asked["file"]
    sys.modules[asked["home"]] = module
    source, asked["source"] = asked["source"], ""
    code = compile(source, asked["file"], "exec", dont_inherit=True)
    del source
    builtins.__import__ = load
    try:
        exec(code, module.__dict__)
    except BaseException:
        return ["soft"] * len(asked["cases"])
    finally:
        builtins.__import__ = real
    found = []
    for name in asked["cases"]:
        function, said = module.__dict__.get(name), "passed"
        for rows in itertools.product(*getattr(function, "tables", [])):
            given = {}
            for row in rows:
                given.update(row)
            try:
                builtins.__import__ = load
                function(**given)
            except (ImportError, OSError, MemoryError, RecursionError, EOFError):
                said = "soft"
            except BaseException as error:
                said = type(error).__name__ if said != "soft" else said
            finally:
                builtins.__import__ = real
        found.append(said)
    return found


found = run()
os.write(out, (asked["home"] + json.dumps(found)).encode())
os._exit(0)
"""

import json
import os
import shutil
import subprocess
from functools import cache

import pytest
from dom import HARNESS

PLANS = '[{name:"A & B",month:7},{name:"<b>Bold</b>",month:11,popular:true}]'

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")

# Runs on the workspace: for each line the page in a document of its own, and the value of an expression in it. Answers have a
# pipe of their own.
PROGRAM = r"""
const { readFileSync, writeSync } = require("node:fs");
const { createInterface } = require("node:readline");
const { runInNewContext } = require("node:vm");
const answers = Number(process.argv[1]), source = readFileSync("page.js", "utf8");
const given = { console, setTimeout, clearTimeout, setInterval, clearInterval, queueMicrotask };
createInterface({ input: process.stdin }).on("line", (line) => {
  const { harness, plans, script } = JSON.parse(line);
  let said;
  try {
    const page = `(() => { const PLANS = ${plans};\n${source}\n;\nreturn JSON.stringify(${script}); })()`;
    said = { value: runInNewContext(`${harness}\n${page}`, { ...given }) };
  } catch (error) {
    said = { fault: String(error) };
  }
  writeSync(answers, JSON.stringify(said) + "\n");
});
"""


@cache
def agent():
    """A process that runs the agent's code, and the end of the pipe that its answers come from."""
    answers, inside = os.pipe()
    command = ["work", "--fd", str(inside), "node", "-e", PROGRAM, str(inside)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(inside,), text=True)
    os.close(inside)
    return process, os.fdopen(answers)


def seen(script: str, plans: str = PLANS):
    """The value of an expression, asked of the page after it has run."""
    process, answers = agent()
    print(json.dumps({"harness": HARNESS, "plans": plans, "script": script}), file=process.stdin, flush=True)
    line = answers.readline()
    assert line, "the process that ran page.js is gone"
    said = json.loads(line)
    assert "fault" not in said, said["fault"]
    return json.loads(said["value"])


def texts(selector: str) -> str:
    return f"document.querySelectorAll('{selector}').map(each => each.textContent.trim())"


def test_one_card_for_each_plan():
    assert seen("document.querySelectorAll('#plans .plan').length") == 2


def test_names_are_text():
    assert seen(texts("#plans .plan h2")) == ["A & B", "<b>Bold</b>"]


def test_prices_of_a_month():
    assert seen(texts("#plans .plan .price")) == ["$7 / month", "$11 / month"]


def test_prices_of_a_year_are_ten_months():
    assert seen(f"(document.querySelector('#yearly').click(), {texts('#plans .plan .price')})") == ["$70 / year", "$110 / year"]


def test_back_to_months():
    clicks = "document.querySelector('#yearly').click(),"
    assert seen(f"({clicks}{clicks}{texts('#plans .plan .price')})") == ["$7 / month", "$11 / month"]


def test_only_the_popular_plan_has_a_badge():
    assert seen(texts("#plans .plan.popular .badge")) == ["Most popular"]
    assert seen("document.querySelectorAll('.badge').length") == 1
    assert seen("document.querySelectorAll('.badge').length", '[{name:"A",month:1}]') == 0


def test_the_page_loads_its_scripts():
    page = subprocess.run(["work", "cat", "index.html"], capture_output=True, text=True, check=True).stdout
    assert page.index("plans.js") < page.index("page.js")

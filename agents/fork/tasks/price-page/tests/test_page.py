import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dom import HARNESS

WORKSPACE = Path(os.environ["WORKSPACE"])
PLANS = '[{name:"A & B",month:7},{name:"<b>Bold</b>",month:11,popular:true}]'
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


def seen(script: str, plans: str = PLANS):
    """The value of an expression, asked of the page after it has run."""
    source = (WORKSPACE / "page.js").read_text()
    program = f"{HARNESS}\n(() => {{ const PLANS = {plans};\n{source}\n;\n;console.log(JSON.stringify({script})); }})()"
    done = subprocess.run([NODE, "-e", program], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr[-600:]
    return json.loads(done.stdout.splitlines()[-1])


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
    page = (WORKSPACE / "index.html").read_text()
    assert page.index("plans.js") < page.index("page.js")

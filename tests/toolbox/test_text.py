import datetime as dt
import math
import random
import time

import pytest

from nbtools.toolbox.calculator import FUNCTIONS, evaluate
from nbtools.toolbox.text_tools import TOOLS


@pytest.fixture
def call(shelf):
    return shelf(*TOOLS)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("0.1 + 0.2", 0.3),
        ("1/3 * 3", 1),
        ("2**100", 2**100),
        ("2**-2", 0.25),
        ("-2**2", -4),
        ("7 // 2", 3),
        ("-7 % 3", 2),
        ("7.5 % 2", 1.5),
        ("1_000 * 0x10", 16000),
        ("1e3 + 1", 1001),
        ("10**400 / 10**399", 10),
        ("sqrt(16/9)", 4 / 3),
        ("sqrt(2)", math.sqrt(2)),
        ("4**0.5", 2.0),
        ("cbrt(-8)", -2.0),
        ("log10(1000)", 3.0),
        ("log(8, 2)", 3.0),
        ("ln(e)", 1.0),
        ("log(9, 3)", 2.0),
        ("log(1/10**2000)", -2000 * math.log(10)),
        ("round(2.675, 2)", 2.68),
        ("round(sqrt(2), 3)", 1.414),
        ("round(2.5)", 2),
        ("round(pi)", 3),
        ("factorial(20)", math.factorial(20)),
        ("comb(49, 6)", 13983816),
        ("perm(5, 2)", 20),
        ("gcd(12, 18) + lcm(4, 6)", 18),
        ("sum(1, 2, 3.5)", 6.5),
        ("mean(1, 2)", 1.5),
        ("max(1, 2.5, 1/3) - min(1, 2)", 1.5),
        ("floor(2.5) + ceil(2.5) + trunc(-2.5)", 3),
        ("abs(-1/2)", 0.5),
        ("hypot(3, 4)", 5.0),
        ("degrees(pi)", 180.0),
        ("2 \u00d7 3 \u00f7 4 \u2212 1", 0.5),
        ("+".join(["1"] * 400), 400),
        ("0 ** 0", 1),
        ("(-1)**9**9", -1),
        ("1**9**9", 1),
        ("1e-400", 0.0),
        ("+3", 3),
        ("sqrt(pi)", math.sqrt(math.pi)),
        ("factorial(log(100, 10))", 2),
    ],
)
def test_arithmetic_is_exact_where_it_can_be(expression, value):
    assert evaluate(expression) == pytest.approx(value, rel=1e-15, abs=0)
    assert type(evaluate(expression)) is type(value)


def test_the_sum_of_the_issue_has_its_value(call):
    result = call("calculator", expression="2**0.5 + 0.1 + 0.2")
    assert result.data == {"value": 2**0.5 + 0.1 + 0.2}
    assert result.text == str(2**0.5 + 0.1 + 0.2)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9**9",
        "(9**999)**999",
        "0.1**9**9",
        "10**-4000",
        "1e999999999",
        "1e-999999999",
        "factorial(10**9)",
        "factorial(5000)",
        "factorial(factorial(20))",
        "comb(10**6, 5*10**5)",
        "comb(10**300, 2)",
        "perm(10**6, 10**5)",
        "round(5, 10**9)",
        "round(10**9, -10**9)",
        "gamma(1000)",
        "exp(1000)",
        "10**400 * pi",
        "lcm(" + ",".join(f"10**{500 + i}+{i}" for i in range(40)) + ")",
        "-" * 900 + "1",
        "(" * 99 + "1+" * 3 + "-" * 110 + "1" + ")" * 99,
        "9" * 5000,
        "2**" * 300 + "2",
        "pow(9, pow(9, 9))",
        "(10**3000) * (10**3000)",
    ],
)
def test_what_would_be_huge_is_refused_at_once(call, expression):
    assert call.code("calculator", expression=expression) == "LIMIT_EXCEEDED"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "1 +",
        "5!",
        "2^10",
        "__import__('os').system('id')",
        "(1).__class__.__bases__",
        "().__class__",
        "'a' * 3",
        "'%s' % 1",
        "f'{1}'",
        "[1] * 10**9",
        "{1: 2}",
        "lambda: 1",
        "(x := 1)",
        "x",
        "sine(1)",
        "True",
        "None",
        "1j",
        "1 < 2",
        "1 if 1 else 2",
        "1 and 2",
        "~1",
        "1 << 10**9",
        "1 | 2",
        "1 @ 2",
        "max(*[1])",
        "max(1, key=2)",
        "sqrt(x for x in y)",
        "evaluate.__globals__",
        "sqrt.__self__",
        "(sqrt)(2)()",
        "1; 2",
        "1\n2",
        "a\0b",
        "await 1",
        "...",
        "(" * 300 + "1" + ")" * 300,
        "0777",
        "1__0",
    ],
)
def test_what_is_no_arithmetic_is_refused(call, expression):
    assert call.code("calculator", expression=expression) == "PARSE_ERROR"


@pytest.mark.parametrize(
    "expression",
    [
        *("1/0", "1//0", "1%0", "0**-1", "0.0**-0.5", "(-8)**(1/3)", "sqrt(-1)", "log(0)", "log(2, 1)", "acos(2)"),
        *("min()", "sqrt(1, 2)", "factorial(-1)", "factorial(2.5)", "comb(2.5, 1)", "gcd(0.5, 1)", "gamma(0)"),
    ],
)
def test_what_has_no_value_says_so(call, expression):
    assert call.code("calculator", expression=expression) == "INVALID_ARGUMENTS"


def test_a_mistake_is_placed_and_the_nearest_name_offered(call):
    result = call("calculator", expression="1 + sine(2)")
    assert result.data == {"line": 1, "column": 5}
    assert "sin" in result.error.hint
    assert "**" in call("calculator", expression="2^10").error.hint


def test_every_function_takes_numbers_or_says_why_not():
    for name, (least, _, _) in FUNCTIONS.items():
        value = evaluate(f"{name}({', '.join(['0.5' if name == 'atanh' else '1'] * least)})")
        assert isinstance(value, int | float)


def test_random_expressions_agree_with_python():
    chosen = random.Random(7)

    def grown(depth):
        if depth == 0 or chosen.random() < 0.2:
            return str(chosen.randint(1, 99))
        return f"({grown(depth - 1)} {chosen.choice(['+', '-', '*'])} {grown(depth - 1)})"

    for _ in range(300):
        text = grown(5)
        assert evaluate(text) == eval(text)


def test_the_current_time_is_now_in_the_zone_asked_for(call):
    before = int(time.time())
    data = call.data("get_current_datetime", timezone="Europe/Zurich")
    found = dt.datetime.fromisoformat(data["iso"])
    assert before <= data["unix"] <= time.time()
    assert int(found.timestamp()) == data["unix"]
    assert data["timezone"] == "Europe/Zurich"
    assert (data["date"], data["time"]) == (found.date().isoformat(), found.time().isoformat())


def test_without_a_zone_it_is_this_computers_own(call, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert call.data("get_current_datetime")["timezone"] == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "nowhere/at/all")
    assert call.data("get_current_datetime")["timezone"]
    monkeypatch.delenv("TZ")
    assert call.data("get_current_datetime", timezone=None)["iso"]


@pytest.mark.parametrize(
    "zone", ["Europe/Zürich", "../../etc/passwd", "/etc/passwd", "Europe", "", "a\0b", "x" * 10000]
)
def test_an_unknown_zone_offers_the_nearest(call, zone):
    result = call("get_current_datetime", timezone=zone)
    assert result.error.code == "INVALID_ARGUMENTS"
    assert result.error.hint


def test_the_nearest_zone_is_named(call):
    assert "Europe/Zurich" in call("get_current_datetime", timezone="Europe/Zürich").error.hint


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", (0, 0, 0)),
        ("Grüezi mitenand", (15, 16, 2)),
        ("  a\n b\t", (7, 7, 2)),
        ("👩‍🔬", (3, 11, 1)),
        ("\ud800", (1, 3, 1)),
    ],
)
def test_lengths_are_counted_in_three_ways(call, text, counts):
    data = call.data("string_length", text=text)
    assert (data["characters"], data["bytes"], data["words"]) == counts

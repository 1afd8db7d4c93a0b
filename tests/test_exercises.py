"""Проверка упражнений: верное проходит, неверное названо, ничто не роняет урок.

Решения здесь написаны заново, как их напишет учащийся, а не взяты из `nanolm.exercises.formulas`.
"""

from __future__ import annotations

import ast
import copy
import functools
import io
import itertools
import json
import math
import os
import random
import subprocess
import sys
import textwrap
import time
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanolm import budget
from nanolm.exercises import SCENARIOS, attempt, check, exercises, formulas, hint
from nanolm.exercises.attempt import PRINT_LIMIT
from nanolm.exercises.diagnosis import FLOAT, evaluate, rounded, swapped
from nanolm.exercises.judge import written

SEED = 20_240_917

SOLUTIONS = {
    "7.2/flops": """
        def compute_num_flops(param_count, num_tokens):
            return 6 * param_count * num_tokens
    """,
    "7.4/params": """
        def calculate_param_memory(param_count, bytes_per_param):
            return param_count * bytes_per_param / 1024**3
    """,
    "7.4/input": """
        def calculate_input_data_memory(batch_size, max_length, bytes_per_token_id):
            return batch_size * max_length * bytes_per_token_id / 1024**3
    """,
    "7.4/gradients": """
        def calculate_gradient_memory(param_count, bytes_per_param):
            size = param_count * bytes_per_param
            return size / 1024**3
    """,
    "7.4/optimizer": """
        def calculate_optimizer_memory(param_count, bytes_per_param):
            return 2 * param_count * bytes_per_param / 1024**3
    """,
    "7.4/activations": """
        def calculate_activation_memory(batch_size, max_length, num_layers, embedding_dim, bytes_per_param):
            tokens = batch_size * max_length
            return tokens * num_layers * embedding_dim * bytes_per_param / 1024**3
    """,
    "9/params": """
        def count_params(V, D, L, N, K, H, F, tie_embeddings):
            attention = 2 * D * N * H + 2 * D * K * H
            block = attention + 3 * D * F + 2 * D
            tables = V * D if tie_embeddings else 2 * V * D
            return tables + L * block + D
    """,
    "9/swiglu-width": """
        def swiglu_width(D):
            return round(8 * D / 3)
    """,
    "9/flops-rule": """
        def flops_rule(total_params, V, D, tie_embeddings):
            tables = V * D if tie_embeddings else 2 * V * D
            return 6 * (total_params - tables)
    """,
    "9/flops-per-token": """
        def flops_per_token(n_params, L, S, D):
            return 6 * n_params + 12 * L * S * D
    """,
    "9/kv-cache": """
        def kv_cache_bytes(B, S, L, N, K, H, bytes_per_value):
            return 2 * B * S * L * K * H * bytes_per_value
    """,
    "9/crossover-batch": """
        def crossover_batch(weight_bytes, S, L, K, H, bytes_per_value):
            return weight_bytes / (2 * S * L * K * H * bytes_per_value)
    """,
    "9/moe-active": """
        def moe_params(L, attention, expert, E, k):
            return L * (attention + E * expert), L * (attention + k * expert)
    """,
    "9/moe-costs": """
        def moe_costs(total_params, active_params, bytes_per_param):
            return total_params * bytes_per_param, 6 * active_params
    """,
    "9/training-time": """
        def training_days(n_params, tokens, gpus, peak_flops_per_s, mfu):
            seconds = 6 * n_params * tokens / (gpus * peak_flops_per_s * mfu)
            return seconds / 86400
    """,
}
#: Другие верные записи: их проверка тоже обязана принять.
ALSO_RIGHT = {
    "7.2/flops": ["lambda p, n: 2 * p * n + 4 * p * n", "lambda p, n: 6.0 * p * n", "lambda p, n: Decimal(6 * p * n)"],
    "7.4/params": [
        "lambda p, b: p * b / 2**30", "lambda p, b: Fraction(p * b, 1024**3)", "lambda p, b=2: p * b / 2**30",
    ],
    "9/swiglu-width": [
        "lambda D: int(8 * D / 3 + 0.5)", "lambda D: (8 * D + 1) // 3", "lambda D: float(round(8 * D / 3))",
    ],
    "9/moe-active": ["lambda L, a, e, E, k: [L * (a + E * e), L * (a + k * e)]"],
}  # fmt: skip

DESIGN_IDS = {
    "7.2/flops", "7.2/scenarios", "7.4/params", "7.4/gradients", "7.4/optimizer", "7.4/input", "7.4/activations",
    "9/params", "9/swiglu-width", "9/flops-per-token", "9/kv-cache", "9/crossover-batch", "9/moe-active",
    "9/training-time",
}  # fmt: skip
FUNCTIONS = [exercise for exercise in exercises() if exercise.arguments]
BY_ID = {exercise.id: exercise for exercise in exercises()}


def compiled(source):
    """Функция из исходника, как её определила бы ячейка."""
    scope = {"Fraction": Fraction, "Decimal": Decimal}
    source = textwrap.dedent(source).strip()
    if source.startswith("lambda"):
        return eval(source, scope)
    exec(compile(source, "<cell>", "exec"), scope)
    return scope[ast.parse(source).body[-1].name]


def solution(id_):
    return compiled(SOLUTIONS[id_])


by_function = pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda exercise: exercise.id)


# --- Верное ------------------------------------------------------------------------------------


def test_every_exercise_of_the_design_is_there_and_has_a_solution_here():
    assert set(BY_ID) >= DESIGN_IDS
    assert set(SOLUTIONS) == {exercise.id for exercise in FUNCTIONS}


@by_function
def test_solution_is_correct_whatever_the_random_points(exercise):
    for seed in range(25):
        result = check(exercise.id, solution(exercise.id), seed=seed)
        assert result.status == "correct", str(result)
    assert result.misconception is None
    assert result.passed == result.total == 13
    assert result
    assert exercise.accuracy in result.message or "точное" in result.message


@pytest.mark.parametrize(("id_", "source"), [(id_, s) for id_, sources in ALSO_RIGHT.items() for s in sources])
def test_other_right_answers_are_correct(id_, source):
    assert check(id_, compiled(source), seed=SEED).status == "correct"


@by_function
def test_reference_formula_passes_its_own_check_and_agrees_with_the_signature(exercise):
    assert check(exercise.id, exercise.solve, seed=SEED)
    code = exercise.solve.__code__
    assert code.co_varnames[: code.co_argcount] == exercise.names
    assert exercise.signature == f"{exercise.solve.__name__}({', '.join(exercise.names)})"


def test_callables_of_every_kind_are_accepted():
    class Answer:
        def __call__(self, param_count, num_tokens):
            return 6 * param_count * num_tokens

        def method(self, param_count, num_tokens):
            return 6 * param_count * num_tokens

    def by_name(**values):
        return 6 * values["param_count"] * values["num_tokens"]

    def named_only(*, num_tokens, param_count):
        return 6 * num_tokens * param_count

    def by_place(*values):
        return 6 * values[0] * values[1]

    partial = functools.partial(lambda factor, p, n: factor * p * n, 6)
    for function in (Answer(), Answer().method, by_name, named_only, by_place, partial):
        assert check("7.2/flops", function, seed=SEED).status == "correct"


def test_printing_besides_returning_is_allowed_and_stays_inside():
    def noisy(p, n):
        print("считаю")
        print("и сюда", file=sys.stderr)
        return 6 * p * n

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert check("7.2/flops", noisy, seed=SEED)
    assert out.getvalue() == err.getvalue() == ""


# --- Не начато ---------------------------------------------------------------------------------

STUB_BODIES = (
    "...", "return ...", "pass", "return None", "return", "raise NotImplementedError", "return NotImplemented",
    "x = ...\n    return x * 2", "x = ...\n    return float(x)", "x = ...\n    return x.bit_length()",
    "return {first} * ...", "return [...]", "return ..., ...", "print(...)", "return f'{{...}}'", '"""Память."""',
    "size = {first} * 4", "x = ...\n    x += 1\n    return x", "return {{'ответ': ...}}", "return max(..., 1)",
)  # fmt: skip


@by_function
@pytest.mark.parametrize("body", STUB_BODIES)
def test_every_stub_is_not_started(exercise, body):
    source = f"def answer({', '.join(exercise.names)}):\n    {body.format(first=exercise.names[0])}"
    result = check(exercise.id, compiled(source), seed=SEED)
    assert result.status == "not_started", str(result)
    assert not result


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.id)
def test_the_given_stub_is_not_started(exercise):
    scope = {}
    exec(exercise.stub, scope)
    answer = scope[exercise.solve.__name__ if exercise.arguments else "flops"]
    assert check(exercise.id, answer).status == "not_started"


@pytest.mark.parametrize("answer", [None, ...])
@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.id)
def test_nothing_instead_of_an_answer_is_not_started(exercise, answer):
    assert check(exercise.id, answer).status == "not_started"


def test_ellipsis_left_in_one_branch_is_not_started_and_its_line_is_shown():
    result = check("9/flops-rule", compiled("""
        def flops_rule(total_params, V, D, tie_embeddings):
            if tie_embeddings:
                return 6 * (total_params - ...)
            return 6 * (total_params - 2 * V * D)
    """), seed=SEED)  # fmt: skip
    assert (result.status, result.line) == ("not_started", 3)


# --- Названные ошибки --------------------------------------------------------------------------

NAMED = [(exercise, mistake) for exercise in FUNCTIONS for mistake in exercise.mistakes]


@pytest.mark.parametrize(("exercise", "mistake"), NAMED, ids=[f"{e.id}-{m.id}-{i}" for i, (e, m) in enumerate(NAMED)])
def test_each_misconceptions_own_function_gets_its_own_id(exercise, mistake):
    for seed in range(5):
        result = check(exercise.id, mistake.wrong, seed=seed)
        assert (result.status, result.misconception) == ("wrong", mistake.id), str(result)
        assert result.message == mistake.meaning
        assert result.advice == mistake.hint


@by_function
def test_two_misconceptions_with_different_ids_never_coincide(exercise):
    points = exercise.points(SEED)
    for one, two in itertools.combinations(exercise.mistakes, 2):
        if one.id != two.id:
            assert any(not near(evaluate(one.wrong, p), evaluate(two.wrong, p)) for p in points), (one.id, two.id)


def near(one, two, tolerance=FLOAT):
    if one is None or two is None:
        return one is two
    return all(abs(Fraction(a) - Fraction(b)) <= tolerance * abs(Fraction(b)) for a, b in zip(one, two, strict=True))


@by_function
def test_table_of_misconceptions_covers_the_general_ones(exercise):
    ids = {mistake.id for mistake in exercise.mistakes}
    assert len(exercise.mistakes) >= 8
    assert ids & {"int32-overflow", "int64-overflow"} or exercise.id == "9/swiglu-width"


#: Классические ошибки курса: имя → упражнение, id, функция, написанная так, как её пишут.
CLASSIC = {
    "кеш по N": ("9/kv-cache", "query-heads", "lambda B, S, L, N, K, H, b: 2 * B * S * L * N * H * b"),
    "кеш без двойки": ("9/kv-cache", "factor-two-forgotten", "lambda B, S, L, N, K, H, b: B * S * L * K * H * b"),
    "кеш по N и без двойки": (
        "9/kv-cache", "query-heads-and-factor-two",
        "lambda B, S, L, N, K, H, b: B * S * L * N * H * b",
    ),
    "эмбеддинг в 6N": ("9/flops-rule", "embeddings-in-6n", "lambda total, V, D, tied: 6 * total"),
    "F = 4D": ("9/swiglu-width", "four-d", "lambda D: 4 * D"),
    "связанные дважды": (
        "9/params", "tied-counted-twice",
        "lambda V, D, L, N, K, H, F, tie: 2 * V * D + L * (2 * D * N * H + 2 * D * K * H + 3 * D * F + 2 * D) + D",
    ),
    "ГБ вместо ГиБ": ("7.4/params", "gb-for-gib", "lambda p, b: p * b / 1e9"),
    "байты вместо ГиБ": ("7.4/activations", "bytes-for-gib", "lambda B, S, L, D, b: B * S * L * D * b"),
    "FLOPs смеси по всем": ("9/moe-costs", "flops-by-total", "lambda t, a, b: (t * b, 6 * t)"),
    "память смеси по активным": ("9/moe-costs", "memory-by-active", "lambda t, a, b: (a * b, 6 * a)"),
    "смесь: всё по всем": (
        "9/moe-active", "active-by-total", "lambda L, a, e, E, k: (L * (a + E * e), L * (a + E * e))",
    ),
    "4N": ("7.2/flops", "backward-only", "lambda p, n: 4 * p * n"),
    "2N": ("7.2/flops", "forward-only", "lambda p, n: 2 * p * n"),
    "момент один": ("7.4/optimizer", "moments-once", "lambda p, b: p * b / 1024**3"),
    "биты за байты": ("7.4/params", "bits-for-bytes", "lambda p, b: p * b * 8 / 1024**3"),
    "байты за биты": ("7.4/params", "bytes-as-bits", "lambda p, b: p * b / 8 / 1024**3"),
    "кеш в битах": ("9/kv-cache", "bits-for-bytes", "lambda B, S, L, N, K, H, b: 16 * B * S * L * K * H * b"),
    "пакет забыт": ("7.4/activations", "batch-forgotten", "lambda B, S, L, D, b: S * L * D * b / 2**30"),
    "слои забыты": ("7.4/activations", "layers-forgotten", "lambda B, S, L, D, b: B * S * D * b / 2**30"),
    "длина забыта": ("9/kv-cache", "length-forgotten", "lambda B, S, L, N, K, H, b: 2 * B * L * K * H * b"),
    "округление вниз": ("9/swiglu-width", "floor", "lambda D: int(8 * D / 3)"),
    "MFU забыто": ("9/training-time", "mfu-forgotten", "lambda n, t, g, p, m: 6 * n * t / (g * p) / 86400"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_mistake_is_caught_by_name(name):
    id_, expected, source = CLASSIC[name]
    result = check(id_, compiled(source), seed=SEED)
    assert (result.status, result.misconception) == ("wrong", expected), str(result)


# --- Приметы любой формулы ----------------------------------------------------------------------


@by_function
@pytest.mark.parametrize("value", [42, -1.5, 0, 180_066_540_198])
def test_constant(exercise, value):
    answer = (value, value + 1) if exercise.returns else value
    result = check(exercise.id, lambda *args: answer, seed=SEED)
    assert (result.status, result.misconception) == ("wrong", "constant")


@by_function
def test_right_answer_of_the_first_point_as_a_constant(exercise):
    value = exercise.solve(*exercise.given[0])
    assert check(exercise.id, lambda *args: value, seed=SEED).misconception == "constant"


IGNORED = [
    (exercise, index)
    for exercise in FUNCTIONS
    for index in range(len(exercise.arguments))
    if len(exercise.arguments) > 1 and (exercise.id, exercise.names[index]) != ("9/kv-cache", "N")
]


@pytest.mark.parametrize(("exercise", "index"), IGNORED, ids=[f"{e.id}-{e.names[i]}" for e, i in IGNORED])
def test_ignored_argument(exercise, index):
    """Вместо аргумента — число «как в примере»: не единица и не то, что передают."""
    instead = {"bool": False, "float": 0.45, "int": 4}[exercise.arguments[index].kind]

    def wrong(*args):
        return exercise.solve(*args[:index], instead, *args[index + 1 :])

    result = check(exercise.id, wrong, seed=SEED)
    assert result.status == "wrong"
    named = {mistake.id for mistake in exercise.mistakes}
    assert result.misconception == "ignored-argument" or result.misconception in named
    if result.misconception == "ignored-argument":
        assert exercise.names[index] in result.message
    if exercise.arguments[index].kind == "int":
        assert result.misconception == "ignored-argument"


def test_unused_argument_of_the_right_formula_is_not_reported():
    """N в кеше KV не нужен: примета «аргумент не влияет» не должна его называть."""
    result = check("9/kv-cache", lambda B, S, L, N, K, H, b: 2 * B * S * L * K * H * 4, seed=SEED)
    assert result.misconception == "ignored-argument"
    assert result.message.endswith("bytes_per_value.")


SWAPS = [
    (exercise, i, j)
    for exercise in FUNCTIONS
    for i, j in itertools.combinations(range(len(exercise.arguments)), 2)
    if any(
        not near(evaluate(swapped(exercise.solve, i, j), p), evaluate(exercise.solve, p)) for p in exercise.points(SEED)
    )
]


@pytest.mark.parametrize(("exercise", "i", "j"), SWAPS, ids=[f"{e.id}-{e.names[i]}-{e.names[j]}" for e, i, j in SWAPS])
def test_swapped_arguments(exercise, i, j):
    wrong = swapped(exercise.solve, i, j)
    same = [
        m.id
        for m in exercise.mistakes
        if all(near(evaluate(m.wrong, p), evaluate(wrong, p)) for p in exercise.points(SEED))
    ]
    result = check(exercise.id, wrong, seed=SEED)
    assert result.misconception == (same[0] if same else "swapped-arguments")


def test_parameters_in_another_order():
    result = check("9/training-time", compiled("""
        def training_days(tokens, n_params, gpus, mfu, peak_flops_per_s):
            return 6 * n_params * tokens / gpus / peak_flops_per_s / mfu / 86400
    """), seed=SEED)  # fmt: skip
    assert result.status == "correct"  # произведение симметрично: порядок не важен
    result = check("9/crossover-batch", compiled("""
        def crossover_batch(S, weight_bytes, L, K, H, bytes_per_value):
            return weight_bytes / (2 * S * L * K * H * bytes_per_value)
    """), seed=SEED)  # fmt: skip
    assert result.misconception == "swapped-arguments"
    assert "S, weight_bytes" in result.message


@pytest.mark.parametrize("exercise", [e for e in FUNCTIONS if e.tolerance], ids=lambda exercise: exercise.id)
def test_rounding_inside_the_function(exercise):
    for wrong in rounded(exercise.solve):
        result = check(exercise.id, wrong, seed=SEED)
        assert result.status == "correct" or result.misconception in {"rounded", "constant"}, str(result)
    if exercise.id != "7.2/flops":  # там ответ целый: округлять нечего
        assert check(exercise.id, lambda *a: int(exercise.solve(*a)), seed=SEED).misconception == "rounded"
        assert check(exercise.id, lambda *a: round(exercise.solve(*a), 2), seed=SEED).misconception == "rounded"


PLAIN = [exercise for exercise in FUNCTIONS if exercise.id not in {"9/moe-active", "9/moe-costs"}]


@pytest.mark.parametrize("exercise", PLAIN, ids=lambda exercise: exercise.id)
def test_other_general_signs(exercise):
    solve = exercise.solve
    cases = {
        "constant-factor": lambda *a: solve(*a) * 1.37,
        "power-of-ten": lambda *a: solve(*a) / 10**12,
        "wrong-sign": lambda *a: -solve(*a),
        "extra-factor": lambda *a: solve(*a) * a[0],
        "inverted-argument": lambda *a: solve(*a) / a[0] ** 2 * 1.37,
    }
    for id_, wrong in cases.items():
        result = check(exercise.id, wrong, seed=SEED)
        assert (result.status, result.misconception) == ("wrong", id_), str(result)


def test_float32_is_called_imprecise():
    numpy = pytest.importorskip("numpy")
    result = check("9/kv-cache", lambda B, S, L, N, K, H, b: numpy.float32(2 * B * S * L * K * H * b), seed=SEED)
    assert result.misconception == "imprecise"


def test_answer_that_remembers_the_previous_call_is_unstable():
    sums = []

    def accumulating(p, n):
        sums.append(6 * p * n)
        return sum(sums)

    assert check("7.2/flops", accumulating, seed=SEED).misconception == "unstable"


def test_table_of_the_given_answers_does_not_pass():
    exercise = BY_ID["9/params"]
    known = {point: exercise.solve(*point) for point in exercise.given}
    result = check("9/params", lambda *args: known.get(args, 0), seed=SEED)
    assert result.status == "wrong"
    assert result.passed == 3
    assert "На заданных числах ответ верен" in result.message


# --- Мутанты -----------------------------------------------------------------------------------

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)


def mutation_sites(tree, arguments):
    """Все правки дерева: выбросить множитель, сменить знак, подставить другой аргумент, число, условие."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
            yield from ((node, "keep", side) for side in ("left", "right"))
            yield from ((node, "op", kind) for kind in OPERATORS if not isinstance(node.op, kind))
        elif isinstance(node, ast.Name) and node.id in arguments and isinstance(node.ctx, ast.Load):
            yield from ((node, "id", name) for name in arguments if name != node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield from ((node, "value", node.value + step) for step in (-1, 1))
        elif isinstance(node, ast.IfExp):
            yield (node, "swap", None)


class Mutation(ast.NodeTransformer):
    """Одна правка одного узла."""

    def __init__(self, site):
        self.site = site

    def visit(self, node):
        target, kind, value = self.site
        if node is not target:
            return self.generic_visit(node)
        if kind == "keep":
            return getattr(node, value)
        if kind == "swap":
            node.body, node.orelse = node.orelse, node.body
        else:
            setattr(node, kind, value() if kind == "op" else value)
        return node


def mutants(id_, count):
    """`count` разных мутантов решения, не равных ему как функции; правок от одной до трёх."""
    draw, seen, names = random.Random(id_), set(), BY_ID[id_].names
    original = ast.parse(textwrap.dedent(SOLUTIONS[id_]).strip())
    points = [point for seed in (1, 2) for point in BY_ID[id_].points(seed)]
    right = [evaluate(solution(id_), point) for point in points]
    while len(seen) < count:
        tree = copy.deepcopy(original)
        for _ in range(draw.randint(1, 3)):
            sites = list(mutation_sites(tree, names))
            tree = Mutation(draw.choice(sites)).visit(tree) if sites else tree
        source = ast.unparse(ast.fix_missing_locations(tree))
        if source not in seen and not equivalent(compiled(source), points, right):
            seen.add(source)
            yield source


def equivalent(function, points, right):
    """Совпадает ли мутант с решением: на других точках, чем у проверки."""
    return all(near(safe(function, point), value) for point, value in zip(points, right, strict=True))


def safe(function, point):
    try:
        return evaluate(function, point)
    except (TypeError, ValueError):
        return None


@by_function
def test_two_hundred_mutants_never_pass(exercise):
    sources = list(mutants(exercise.id, 200))
    assert len(set(sources)) == 200
    survived = [source for source in sources if check(exercise.id, compiled(source), seed=SEED)]
    assert not survived, survived[0]


def test_mutants_of_the_scenario_table_never_pass():
    source = "{" + ", ".join(f"{name!r}: 6 * {p!r} * {n!r}" for name, (p, n) in SCENARIOS.items()) + "}"
    original = ast.parse(source, mode="eval")
    right, draw, seen = eval(source), random.Random(0), set()
    while len(seen) < 200:
        tree = copy.deepcopy(original)
        for _ in range(draw.randint(1, 2)):
            tree = Mutation(draw.choice(list(mutation_sites(tree, ())))).visit(tree)
        text = ast.unparse(ast.fix_missing_locations(tree))
        value = eval(text)
        if text in seen or near(value.values(), right.values(), Fraction(1, 100)):
            continue  # 6·(110e6 + 1)·3.3e9 в пределах 1 % — не ошибка
        seen.add(text)
        assert check("7.2/scenarios", value).status == "wrong", text


def test_meta_the_mutant_test_can_fail():
    """Проверка с широким допуском пропустила бы мутанта: значит, тест мутантов смотрит на проверку."""
    lax = BY_ID["7.2/flops"]._replace(tolerance=Fraction(1))
    from nanolm.exercises import judge

    assert judge.judge(lax, compiled("lambda p, n: 5 * p * n"), SEED).status == "correct"


# --- Типы --------------------------------------------------------------------------------------

WRONG_VALUES = {
    "строка": "'180066540198'", "список": "[6 * p * n]", "кортеж": "(6, 0)", "множество": "{6 * p * n}",
    "словарь": "{'flops': 6 * p * n}", "логическое": "6 * p * n > 0", "комплексное": "complex(6 * p * n)",
    "функция": "print", "лямбда": "lambda: 6 * p * n", "генератор": "(6 * p * n for _ in 'x')", "объект": "object()",
    "тип": "int", "байты": "b'6'",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_wrong_type(name):
    result = check("7.2/flops", compiled(f"lambda p, n: {WRONG_VALUES[name]}"), seed=SEED)
    assert (result.status, result.misconception) == ("wrong", "wrong-type"), str(result)


def test_decimal_comma_is_explained():
    result = check("7.2/flops", compiled("lambda p, n: (6,0 * p * n)"), seed=SEED)
    assert "отделяется точкой" in result.message


def test_coroutine_is_named_and_closed(recwarn):
    async def answer(p, n):
        return 6 * p * n

    result = check("7.2/flops", answer, seed=SEED)
    assert "async" in result.message
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("Infinity")])
def test_not_finite(value):
    result = check("7.2/flops", lambda p, n: value, seed=SEED)
    assert (result.status, result.misconception) == ("wrong", "not-finite")


@pytest.mark.parametrize("value", ["1", "(1, 2, 3)", "[]", "(1, 'a')", "(1, True)", "{1, 2}"])
def test_pair_expected(value):
    result = check("9/moe-active", compiled(f"lambda L, a, e, E, k: {value}"), seed=SEED)
    assert result.status == "wrong"
    assert result.misconception in {"pair-expected", "wrong-type"}


def repr_type(value):
    """Число в пять тысяч цифр pytest не напечатает."""
    return type(value).__name__


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000, Fraction(1, 10**400), 1e308, 5e-324], ids=repr_type)
def test_enormous_answers_are_shown_not_fatal(value):
    result = check("7.2/flops", lambda p, n: value * p * n, seed=SEED)
    assert result.status == "wrong"
    assert len(str(result)) < 1000


def test_numpy_scalars():
    numpy = pytest.importorskip("numpy")
    for kind in (numpy.float64, numpy.int64, numpy.array):
        assert check("9/swiglu-width", lambda D, kind=kind: kind(round(8 * D / 3)), seed=SEED)
    assert check("7.4/params", lambda p, b: numpy.float32(p * b / 1024**3), seed=SEED)
    assert not check("7.4/params", lambda p, b: numpy.array([p * b / 1024**3]), seed=SEED)
    assert check("7.4/params", lambda p, b: numpy.bool_(True), seed=SEED).misconception == "wrong-type"


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_numpy_int32_overflow_is_named():
    numpy = pytest.importorskip("numpy")
    int32, int64 = numpy.int32, numpy.int64
    assert check("7.2/flops", lambda p, n: int32(p) * int32(n) * 6, seed=SEED).misconception == "int32-overflow"
    assert check("7.2/flops", lambda p, n: 6 * int64(p) * int64(n), seed=SEED).misconception == "int64-overflow"
    memory = check("7.4/params", lambda p, b: int32(p) * int32(b) / 1024**3, seed=SEED)
    assert memory.misconception == "int32-overflow"
    refused = check("7.2/flops", lambda p, n: int32(6 * p * n), seed=SEED)
    assert (refused.status, refused.misconception) == ("error", "int32-overflow")


def test_torch_scalar():
    torch = pytest.importorskip("torch")
    assert check("7.2/flops", lambda p, n: torch.tensor(6.0, dtype=torch.float64) * p * n, seed=SEED)


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers() | st.fractions()
        | st.decimals(),
        lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
)  # fmt: skip
def test_whatever_is_returned_there_is_a_result(value):
    for id_ in ("7.2/flops", "9/moe-active", "7.4/params"):
        result = check(id_, lambda *args: value, seed=SEED)
        assert result.status in {"wrong", "not_started"}
        json.dumps(result.to_dict())
        assert str(result)
    assert check("7.2/scenarios", value).status in {"wrong", "not_started", "error"}
    assert check("7.2/scenarios", {"PaLM": value}).status in {"wrong", "not_started"}
    assert check("7.2/flops", value).status in {"not_started", "error"}


# --- Не вернула --------------------------------------------------------------------------------


@by_function
def test_printed_not_returned(exercise):
    def printing(*args):
        print("ответ:", exercise.solve(*args))

    result = check(exercise.id, printing, seed=SEED)
    assert (result.status, result.misconception) == ("wrong", "printed-not-returned"), str(result)
    assert "ответ" in result.printed


@pytest.mark.parametrize("form", ["{:_}", "{:,}", "{:.4e}", "FLOPs = {}", "{:.1f}"])
def test_printed_in_any_form(form):
    def printing(p, n):
        print(form.format(6 * p * n))

    assert check("7.2/flops", printing, seed=SEED).misconception == "printed-not-returned"


def test_printed_wrong_number_is_not_called_right():
    def printing(p, n):
        print(2 * p * n)

    result = check("7.2/flops", printing, seed=SEED)
    assert (result.status, result.misconception) == ("wrong", "nothing-returned")


def test_branch_without_return():
    result = check("9/flops-rule", compiled("""
        def flops_rule(total, V, D, tied):
            if tied:
                return 6 * (total - V * D)
    """), seed=SEED)  # fmt: skip
    assert (result.status, result.misconception) == ("wrong", "branch-without-return")


# --- Ошибки ------------------------------------------------------------------------------------

FAILURES = {
    "деление": ("return p / 0", None, "Деление на ноль"),
    "имя": ("return 6 * params * n", "unknown-name", "params"),
    "тип": ("return 6 * p * str(n) + 1", None, "не подходит"),
    "рекурсия": ("return answer(p, n)", "endless-recursion", "сама себя"),
    "выход": ("raise SystemExit(3)", None, "завершить программу"),
    "прерывание": ("raise KeyboardInterrupt", None, "прервано"),
    "импорт": ("import no_such_module_here", None, "модуля"),
    "ввод": ("return 6 * p * int(input('токены: '))", "input-asked", "ввода"),
    "assert": ("assert p < 0", None, "assert"),
    "атрибут": ("return p.no_such_attribute", None, "атрибута"),
    "ключ": ("return {}['P']", None, "ключа"),
    "индекс": ("return [][1]", None, "Индекс"),
    "значение": ("return int('шесть') * p", None, "Недопустимое"),
    "память": ("raise MemoryError", None, "памяти"),
    "своё": ("raise BaseException('что-то')", None, "что-то"),
    "генератор": ("raise GeneratorExit", None, "GeneratorExit"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_exception_is_explained_on_the_learners_line(name):
    body, id_, words = FAILURES[name]
    result = check("7.2/flops", compiled(f"def answer(p, n):\n    x = 1\n    {body}"), seed=SEED)
    assert (result.status, result.misconception, result.line) == ("error", id_, 3), str(result)
    assert words in result.message
    assert "Traceback" not in str(result)
    assert "nanolm" not in str(result)


def test_line_of_a_real_file_is_quoted():
    def wrong(p, n):
        return p / (n - n)  # эта строка

    result = check("7.2/flops", wrong, seed=SEED)
    assert result.source == "return p / (n - n)  # эта строка"
    assert result.line == wrong.__code__.co_firstlineno + 1


def test_line_is_the_learners_even_when_a_library_raised():
    result = check("7.2/flops", lambda p, n: json.loads(p), seed=SEED)
    assert "json.loads(p)" in result.source


@pytest.mark.parametrize(
    "loop", ["while True: pass", "while True:\n        p += 1", "return sum(1 for _ in iter(int, 1))"]
)
def test_endless_loop_is_stopped(loop, monkeypatch):
    monkeypatch.setattr(attempt, "LIMIT_S", 0.3)
    before = time.monotonic()
    result = check("7.2/flops", compiled(f"def answer(p, n):\n    {loop}"), seed=SEED)
    assert (result.status, result.misconception) == ("error", "endless-loop")
    assert time.monotonic() - before < 2
    assert sys.gettrace() is None


def test_a_debuggers_trace_is_left_alone():
    def trace(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert check("7.2/flops", solution("7.2/flops"), seed=SEED)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


def test_a_million_printed_lines_are_cut():
    def chatty(p, n):
        for _ in range(5_000):
            print("строка")
        return 1

    result = check("7.2/flops", chatty, seed=SEED)
    assert len(result.printed) < PRINT_LIMIT
    assert len(str(result)) < 2000


def test_streams_and_input_come_back():
    import builtins

    before = (sys.stdout, sys.stderr, builtins.input)
    check("7.2/flops", compiled("lambda p, n: input()"), seed=SEED)
    assert (sys.stdout, sys.stderr, builtins.input) == before


ARITIES = ("lambda: 1", "lambda p: p", "lambda p, n, x: p", "lambda p, n, *, x: p", "lambda *, a, b: a")


@pytest.mark.parametrize("source", ARITIES)
def test_wrong_arity(source):
    result = check("7.2/flops", compiled(source), seed=SEED)
    assert (result.status, result.misconception) == ("error", "wrong-arity")
    assert "param_count, num_tokens" in result.advice


@pytest.mark.parametrize("value", [1.8e14, 0, "def f(): ...", [1], {"a": 1}, object()])
def test_value_instead_of_a_function(value):
    result = check("7.2/flops", value)
    assert (result.status, result.misconception) == ("error", "value-not-function")
    assert 'check("7.2/flops", compute_num_flops)' in result.advice


@pytest.mark.parametrize("builtin", [print, max, math.prod, int, dict, id])
def test_builtins_do_not_break_the_check(builtin):
    assert check("7.2/flops", builtin, seed=SEED).status in {"wrong", "error"}


@pytest.mark.parametrize("bad", ["7.2/flop", "", "х", None, 7.2, ["7.2/flops"], lambda p, n: p])
def test_unknown_id(bad):
    result, tip = check(bad, 1), hint(bad)
    assert (result.status, result.misconception) == ("error", "unknown-exercise")
    assert result.message == tip.message
    assert "упражнения" in result.message.lower()


def test_near_id_is_suggested():
    assert "«7.2/flops»" in check("7.2/flop", 1).message


# --- Сценарии ----------------------------------------------------------------------------------


def right_table():
    return {name: 6 * p * n for name, (p, n) in SCENARIOS.items()}


def test_scenarios_right_rounded_and_with_other_spelling():
    assert check("7.2/scenarios", right_table())
    assert check("7.2/scenarios", {"BERT-base": 2.18e18, "T5-large": 4.62e21, "Gemma-1B": 1.8e14, "PaLM": 2.53e24})
    spelled = {"bert base": 2.18e18, "T5": 4.62e21, "Gemma-1B на Africa Galore": 1.8e14, "PALM": Fraction(253 * 10**22)}
    assert check("7.2/scenarios", spelled)


SCENARIO_MISTAKES = {
    "forward-only": lambda p, n: 2 * p * n,
    "backward-only": lambda p, n: 4 * p * n,
    "factor-forgotten": lambda p, n: p * n,
    "columns-mixed": lambda p, n: 6 * p * p,
    "tokens-forgotten": lambda p, n: 6 * p,
    "power-of-ten": lambda p, n: 6 * p * n / 1e9,
    "too-rough": lambda p, n: 6.2 * p * n,
    "wrong-type": lambda p, n: f"{6 * p * n}",
}


@pytest.mark.parametrize("id_", SCENARIO_MISTAKES)
def test_scenario_mistake_is_named_in_one_entry_and_in_all(id_):
    wrong = SCENARIO_MISTAKES[id_]
    one = check("7.2/scenarios", {**right_table(), "PaLM": wrong(*SCENARIOS["PaLM"])})
    everywhere = check("7.2/scenarios", {name: wrong(*given) for name, given in SCENARIOS.items()})
    for result in (one, everywhere):
        assert (result.status, result.misconception) == ("wrong", id_), str(result)
    assert (one.passed, one.total) == (3, 4)
    assert one.message.startswith("PaLM: ")
    assert everywhere.message.count("\n") == 3


def test_scenario_forgotten_prefix_of_tokens():
    result = check("7.2/scenarios", {**right_table(), "BERT-base": 6 * 110e6 * 3.3})
    assert result.misconception == "power-of-ten"
    assert "10⁹" in result.message
    assert "3.3e9" in result.advice


def test_scenario_missing_unknown_repeated_and_swapped():
    table = right_table()
    less = {name: value for name, value in table.items() if name != "PaLM"}
    assert check("7.2/scenarios", less).misconception == "missing-scenario"
    assert check("7.2/scenarios", {**table, "GPT-9": 1.0}).misconception == "unknown-scenario"
    assert check("7.2/scenarios", {**table, "palm": 1.0}).misconception == "unknown-scenario"
    assert check("7.2/scenarios", {**table, 5: 1.0}).misconception == "unknown-scenario"
    swapped_rows = {**table, "PaLM": table["T5-large"], "T5-large": table["PaLM"]}
    assert check("7.2/scenarios", swapped_rows).misconception == "other-scenario"


def test_scenario_different_mistakes_have_no_common_id_but_each_is_named():
    result = check("7.2/scenarios", {**right_table(), "PaLM": 2 * 540e9 * 780e9, "BERT-base": 4 * 110e6 * 3.3e9})
    assert result.misconception is None
    assert "Множитель 2".lower() in result.message.lower()
    assert "множитель 4" in result.message.lower()


def test_scenario_partly_filled_is_not_started_and_says_what_is_left():
    result = check("7.2/scenarios", {**right_table(), "PaLM": ...})
    assert (result.status, result.passed) == ("not_started", 3)
    assert result.message.startswith("PaLM")


@pytest.mark.parametrize("answer", [right_table, [1, 2], "таблица", 5])
def test_scenario_not_a_dictionary(answer):
    assert check("7.2/scenarios", answer).status == "error"


# --- Точки, подсказки, вид ---------------------------------------------------------------------


@by_function
def test_points_are_distinct_prime_like_and_repeatable(exercise):
    assert len(exercise.given) >= 3
    assert exercise.points(1) == exercise.points(1) != exercise.points(2)
    for point in [*exercise.points(1), *exercise.points(2)]:
        numbers = [value for value in point if not isinstance(value, bool)]
        assert len(set(numbers)) == len(numbers)
        assert all(value > 2 for value in numbers if isinstance(value, int))
        assert all(value % 2 for value in numbers if isinstance(value, int))


def test_seed_is_random_and_repeats_the_check():
    results = [check("7.2/flops", lambda p, n: 5) for _ in range(3)]
    assert len({result.seed for result in results}) == 3
    again = check("7.2/flops", lambda p, n: 5, seed=results[0].seed)
    assert again == results[0]


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.id)
def test_hints_are_graded_and_do_not_spell_the_formula(exercise):
    total = len(exercise.hints)
    assert total >= 3
    shown = [hint(exercise.id) for _ in range(total + 1)]
    assert [tip.level for tip in shown] == [*range(1, total + 1), total]
    assert "последняя" in str(shown[-1])
    assert hint(exercise.id).level == 1  # после последней — снова с первой
    assert hint(exercise.id, 2) == hint(exercise.id, 2)
    assert hint(exercise.id, 99).level == total
    assert hint(exercise.id, 0).level == 1


def test_no_text_gives_the_formula_away():
    texts = [text for e in exercises() for text in (*e.hints, *(t for m in e.mistakes for t in m[2:]))]
    for text in texts:
        assert not any(sign in text for sign in ("*", "·D", "6PN", "return 6", "+ 12", "8D/3")) or "(N·H" in text, text
        assert text[-1] in ".?:", text
        assert "  " not in text


def test_result_reads_well_and_hides_our_tracks():
    result = check("7.4/params", lambda p, b: p * b / 1e9, seed=SEED)
    assert str(result).splitlines() == [
        "Неверно: 7.4/params, Память параметров",
        "Это гигабайты (10⁹ байт), а нужны гибибайты (2³⁰ байт): разница 7,4\u00a0%.",
        "  Вход:      calculate_param_memory(1000003, 3)",
        "  Получено:  0,003000009",
        "  Ожидалось: 0,002793976",
        "Гибибайт — степень двойки: 1024 в кубе байт.",
    ]
    assert repr(result) == str(result)


def test_learners_text_is_escaped_in_html():
    evil = "<img src=x onerror=alert(1)>"

    def returns(p, n):
        return evil

    def prints(p, n):
        print(evil)

    def raises(p, n):
        raise ValueError(evil)

    for answer in (returns, prints, raises):
        html = check("7.2/flops", answer, seed=SEED)._repr_html_()
        assert "<img" not in html
        assert "&lt;img" in html
    assert "<img" not in check("7.2/scenarios", {evil: 1})._repr_html_()
    assert "<img" not in check(evil, 1)._repr_html_()
    assert "<img" not in hint(evil)._repr_html_()


def test_result_is_json_with_text_and_heading():
    data = json.loads(json.dumps(check("9/kv-cache", lambda *a: 1, seed=SEED).to_dict()))
    assert data["status"] == "wrong"
    assert data["text"].startswith(data["heading"])
    assert {"id", "misconception", "message", "advice", "input", "got", "expected", "line", "source", "seed"} <= set(
        data
    )


def test_objects_with_a_broken_repr_or_message():
    class Broken(Exception):  # noqa: N818
        def __str__(self):
            raise RuntimeError

        __repr__ = __str__

    def raises(p, n):
        raise Broken

    assert check("7.2/flops", lambda p, n: Broken(), seed=SEED).misconception == "wrong-type"
    assert "Broken" in check("7.2/flops", raises, seed=SEED).message
    assert check("7.2/flops", Broken()).status == "error"


class Hostile:
    """Любое обращение к объекту завершает программу."""

    def _leave(self, *_):
        raise SystemExit(3)

    __repr__ = __str__ = __iter__ = __getattr__ = item = __eq__ = __index__ = __hash__ = _leave
    __class__ = property(_leave)
    ndim = 0


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError("не сравнивайте меня")

    __hash__ = strip = __len__ = __getitem__ = __format__ = __eq__


class HostileError(Exception):
    def __str__(self):
        raise SystemExit(4)

    __class__ = property(__str__)


def raising_hostile(*args):
    raise HostileError


HOSTILE = {
    "объект вместо функции": Hostile(),
    "возвращает объект": lambda *args: Hostile(),
    "возвращает пару объектов": lambda *args: (Hostile(), Hostile()),
    "возвращает строку": lambda *args: HostileText("Ellipsis"),
    "бросает": raising_hostile,
    "класс словаря": dict,
}


@pytest.mark.parametrize("id_", ["7.2/flops", "7.2/scenarios", "9/moe-active", "9/swiglu-width"])
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_hostile_escapes_the_check(id_, name):
    result = check(id_, HOSTILE[name], seed=SEED)
    assert result.status in {"error", "wrong"}
    assert "<" not in str(result)
    assert any("а" <= letter <= "я" for letter in result.message)
    json.dumps(result.to_dict())


def test_answer_that_breaks_the_check_itself_is_an_error_with_the_reason():
    result = check("7.2/flops", lambda p, n: HostileText("6pn"), seed=SEED)
    assert (result.status, result.misconception, result.id) == ("error", "unreadable-answer", "7.2/flops")
    assert "RuntimeError: не сравнивайте меня" in result.message
    hostile_values = {**right_table(), "PaLM": HostileText("x")}
    assert check("7.2/scenarios", hostile_values).misconception == "unreadable-answer"


def test_class_instead_of_a_dictionary_is_called_a_class():
    result = check("7.2/scenarios", dict)
    assert (result.status, result.misconception) == ("error", "wrong-type")
    assert result.message.endswith("а передан класс dict.")


def test_hostile_id_is_copied_before_use():
    assert check(HostileText("7.2/flops"), solution("7.2/flops"), seed=SEED).status == "correct"
    assert hint(HostileText("7.2/flops"), 1) == hint("7.2/flops", 1)
    for bad in (HostileText("нет"), Hostile()):
        assert check(bad, 1).misconception == "unknown-exercise"
        assert hint(bad).message == check(bad, 1).message


def test_ctrl_c_still_interrupts_the_check():
    class Interrupting:
        def __repr__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("7.2/flops", Interrupting(), seed=SEED)


@pytest.mark.parametrize("seed", [[1], "1", 1.5, {}, Hostile])
def test_seed_is_a_whole_number(seed):
    seed = seed() if seed is Hostile else seed  # сам pytest такого объекта в параметрах не переживёт
    result = check("7.2/flops", solution("7.2/flops"), seed=seed)
    assert (result.status, result.misconception) == ("error", "bad-seed")
    assert "seed — целое число" in result.message


@pytest.mark.parametrize("level", ["x", 1.5, [1], Hostile])
def test_level_of_a_hint_is_a_whole_number(level, monkeypatch):
    monkeypatch.setattr("nanolm.exercises._shown_hints", {})
    tip = hint("7.2/flops", level() if level is Hostile else level)
    assert f"целое число от 1 до {len(BY_ID['7.2/flops'].hints)}" in tip.message
    assert str(tip) == tip.message
    assert hint("7.2/flops").level == 1  # счёт показанных не сдвинулся


QUICK = {
    "большой порядок": ("lambda D: Decimal('1e999999999')", "constant", "больше 10³⁰⁰"),
    "отрицательное": ("lambda D: Decimal('-1e999999999')", "constant", "меньше −10³⁰⁰"),
    "малый порядок": ("lambda D: Decimal('1e-999999999')", "constant", "меньше 10⁻³⁰⁰ по модулю"),
    "ноль": ("lambda D: Decimal('0e999999999')", "constant", "0"),
    "много цифр": ("lambda D: Decimal('7.' + '3' * 300_000)", "constant", "7,333333"),
    "печать": ("lambda D: print('1e999999999')", "nothing-returned", ""),
    "печать малого": ("lambda D: print('1E-999999999')", "nothing-returned", ""),
}


@pytest.mark.parametrize("name", QUICK)
def test_huge_exponents_do_not_hang_the_check(name):
    source, misconception, got = QUICK[name]
    code = f"""
        from decimal import Decimal
        from nanolm.exercises import check
        result = check("9/swiglu-width", {source}, seed={SEED})
        print(result.misconception, result.got, sep="|")
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, encoding="utf-8", check=True, timeout=20,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ).stdout.strip()  # fmt: skip
    assert out.split("|")[0] == misconception
    assert out.split("|")[1].startswith(got)


def test_ordinary_decimal_and_printed_exponent_still_count():
    assert check("9/swiglu-width", lambda D: Decimal(round(8 * D / 3)).scaleb(2).scaleb(-2), seed=SEED)
    printed = check("9/swiglu-width", lambda D: print(f"{round(8 * D / 3):.6e}"), seed=SEED)
    assert printed.misconception == "printed-not-returned"


def test_expected_beside_nan_is_a_number_or_a_pair():
    one = check("9/swiglu-width", lambda D: math.nan, seed=SEED)
    assert one.misconception == "not-finite"
    assert one.expected.isdigit()
    two = check("9/moe-active", lambda *args: (math.inf, 1), seed=SEED)
    assert two.misconception == "not-finite"
    assert two.expected.startswith("(")
    assert "; " in two.expected


def test_catalogue_prints_text_exercises_too():
    every = exercises()
    assert {phrase.id for phrase in every.texts} == {"7.1/collect", "7.1/duration", "7.3/format-question", "7.3/layers"}
    for phrase in every.texts:
        assert f"\n{phrase.id} " in str(every)
        assert phrase.id in every._repr_html_()
    assert {phrase.id for phrase in exercises("7.3").texts} == {"7.3/format-question", "7.3/layers"}
    assert "7.3/layers" in str(exercises("7.3"))
    assert "7.1/" not in str(exercises("7.2"))
    assert "7.1/duration" in check("совсем другое", 1).message


def test_catalogue_lists_everything():
    text, html = str(exercises()), exercises()._repr_html_()
    for exercise in exercises():
        assert exercise.id in text
        assert exercise.title in html
    assert {exercise.lesson for exercise in exercises()} == {"7.2", "7.4", "9"}
    assert {exercise.id for exercise in exercises("7.2")} == {"7.2/flops", "7.2/scenarios"}


def test_shown_call_can_be_pasted():
    for exercise in FUNCTIONS:
        call = written(exercise, exercise.given[0])
        assert eval(call, {exercise.solve.__name__: exercise.solve}) == exercise.solve(*exercise.given[0])


# --- Эталоны против счёта ----------------------------------------------------------------------


def test_reference_formulas_agree_with_the_account():
    spec = budget.Spec(V=1009, D=96, L=3, N=21, K=7, H=13, F=257, S=1021)
    account = budget.parameter_breakdown(spec)
    flops = budget.flops_per_token(spec)
    assert formulas.count_params(1009, 96, 3, 21, 7, 13, 257, False) == account.total
    # Нормы весят, но в произведениях не участвуют: правило 6N считает их, счёт — нет.
    assert formulas.flops_rule(account.total, 1009, 96, False) == 6 * account.non_embedding
    norms = account["norms"]
    assert flops["attention"] + flops["ffn"] == 6 * (account.non_embedding - norms)
    square = budget.Spec(V=1009, D=273, L=3, N=21, K=7, H=13, F=257, S=1021)
    expected = formulas.flops_per_token(0, 3, 1021, 273)
    assert budget.flops_per_token(square)["scores"] == expected
    assert formulas.kv_cache_bytes(5, 1021, 3, 21, 7, 13, 2) == budget.kv_cache_bytes(spec, B=5).total
    weights = 2 * account.total
    assert math.isclose(formulas.crossover_batch(weights, 1021, 3, 7, 13, 2), budget.crossover_batch(spec))
    assert formulas.swiglu_width(97) == budget.Spec(V=8, D=97, L=1, N=1).F


def test_reference_formulas_give_the_numbers_of_the_course():
    assert {name: f"{value:.2e}" for name, value in formulas.scenario_flops().items()} == {
        "BERT-base": "2.18e+18", "T5-large": "4.62e+21", "Gemma-1B": "1.80e+14", "PaLM": "2.53e+24",
    }  # fmt: skip
    column = [
        f(*args, b)
        for b in (4, 2)
        for f, args in (
            (formulas.calculate_param_memory, (4e9,)),
            (formulas.calculate_activation_memory, (8, 1024, 32, 2560)),
            (formulas.calculate_optimizer_memory, (4e9,)),
        )
    ]
    assert [f"{value:.2f}" for value in column] == ["14.90", "2.50", "29.80", "7.45", "1.25", "14.90"]
    assert f"{formulas.calculate_input_data_memory(8, 1024, 4):.6f}" == "0.000031"
    assert formulas.moe_params(24, 20e6, 60e6, 8, 2) == (12.0e9, 3.36e9)
    assert math.isclose(formulas.training_days(125e6, 2.5e9, 1, 4e13, 1), 46_875 / 86_400)


# --- Только стандартная библиотека -------------------------------------------------------------


@pytest.mark.parametrize(("extra", "clean"), [("", True), ("import numpy", False)])
def test_exercises_need_only_the_standard_library(extra, clean):
    if extra:
        pytest.importorskip("numpy")
    code = f"import sys; import nanolm.exercises; {extra}\nprint([m for m in sys.modules if m in ('numpy', 'torch')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert (out.strip() == "[]") is clean

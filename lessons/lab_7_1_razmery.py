# ---
# jupytext:
#   text_representation:
#     extension: .py
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # Лабораторная 7.1. Сравните модели разного размера
#
# Что покупает модель побольше и чем за это платят? Возьмём две модели одного семейства, научим их одним и тем
# же фактам, зададим одни и те же вопросы — и положим рядом ответы, время и память. Перед каждым измерением
# сделаем прогноз.
#
# :::{admonition} К концу вы сможете
# :class: tip
#
# - описать, чем отличаются ответы моделей разного размера, и показать это числом;
# - предсказать память и время ответа по геометрии модели и сказать, где прогноз ошибётся;
# - назвать, что взвешивать, когда модель выбирают под задачу.
# :::
#
# - **Время:** 15 минут.
# - **Устройство:** любой процессор. Ячейки с видеокартой — по желанию, они в конце.
# - **Нужно знать:** как языковая модель порождает текст и что такое {term}`жадная генерация`. Хорошо читать
#   вместе с темой о {term}`префилле <префилл>` и {term}`декодировании <декодирование>` или после законов
#   масштабирования.
# - **Обозначения:** $V$ — словарь, $D$ — ширина, $L$ — слои, $N$ — головы, $P$ — число параметров. Остальные
#   буквы — на [странице обозначений](../docs/notation.md).
#
# **Задания:** собрать ответы малой и большой модели и засечь время; напечатать время по-русски; выбрать
# модель для двух задач и защитить выбор числами.

# %% [markdown]
# ## Сначала угадайте
#
# 1. Модель в двадцать раз больше. Во сколько раз больше фактов она вспомнит — в двадцать, вдвое?
# 2. А во сколько раз медленнее ответит?
# 3. Что подведёт прогноз времени: умножение матриц, чтение весов или что-то третье?

# %%
import gc
import time

import torch
from nanolm.budget import decode_step_time, inference_memory, parameter_breakdown
from nanolm.exercises.text import check, hint
from nanolm.facts import RELATIONS, facts, fixed_prompts
from nanolm.figures import lines, prose, table
from nanolm.hardware import gpu
from nanolm.measure import alternate, ratio
from nanolm.pretrain import FAMILY, recalled
from nanolm.roofline import machine
from nanolm.store import restore
from nanolm.units import (
    binary_bytes,
    counted,
    decimal,
    duration,
    gib,
    number,
    percent,
    plural,
    short,
)
from nanolm.zoo import preset

here = machine()  # скорость памяти и счёта этого компьютера: пригодятся для прогноза
torch.set_num_threads(1)  # матрицы так малы, что второй поток только мешает

# %% [markdown]
# `FAMILY` — рецепты обеих моделей, `restore` берёт обученную модель из хранилища или обучает её на месте,
# `machine` измеряет пределы этого компьютера: из них получится прогноз времени.
#
# ## Факты
#
# Нужны факты, которых много, которые коротки и проверяются до буквы. Они уже лежат в библиотеке Babel: это
# CLDR, справочник Unicode о странах, валютах, языках и часовых поясах. «Страна» в нём — любая территория с
# собственным кодом.

# %%
known = facts()
print("фактов:", number(len(known)))
for fact in known[:: len(known) // 6]:
    print(fact.sentence)

# %% [markdown]
# Модели дают начало фразы до двоеточия, она дописывает ответ. Засчитывается только точное совпадение: «кенийский
# шилинг» — ошибка.
#
# ## Две модели одного семейства

# %%
small_spec, large_spec = (recipe.spec for recipe in FAMILY.values())
sizes = {name: parameter_breakdown(recipe.spec) for name, recipe in FAMILY.items()}
table(
    ["", *FAMILY],
    [
        ("ширина D", small_spec.D, large_spec.D),
        ("слоёв L", small_spec.L, large_spec.L),
        ("голов N", small_spec.N, large_spec.N),
        ("словарь V", small_spec.V, large_spec.V),
        ("параметров", *(account.total for account in sizes.values())),
        ("из них эмбеддинг", *(account["embedding"] for account in sizes.values())),
        ("в слоях", *(account.non_embedding for account in sizes.values())),
        ("эпох", *(recipe.epochs for recipe in FAMILY.values())),
    ],
    "Словарь, данные и число шагов у обеих одинаковы",
)

# %% tags=["remove-cell"]
TIMES = ("раз", "раза", "раз")
small_size, large_size = sizes.values()
prose(
    z_ratio=counted(large_size.total / small_size.total, *TIMES),
    z_layers_ratio=counted(
        large_size.non_embedding / small_size.non_embedding, *TIMES
    ),
    z_embedding=percent(small_size["embedding"] / small_size.total, 0),
    z_embedding_large=percent(large_size["embedding"] / large_size.total, 0),
)

# %% [markdown]
# Большая модель больше в {glue:text}`z_ratio`. У малой {glue:text}`z_embedding` параметров — это таблица
# эмбеддингов, у большой — {glue:text}`z_embedding_large`. Если мерить тем, что считает, — слоями, — разница
# уже в {glue:text}`z_layers_ratio`. Почему словарь так весом у маленьких моделей, разбирает
# [урок девятой недели](week_09_buhgalteriya.py).
#
# ## Малая модель
#
# Если модель с этим рецептом здесь уже обучали, она читается с диска; иначе обучается сейчас — это десятки
# секунд. Результат один и тот же: случайность идёт от одного числа, `seed`.

# %%
small = restore(FAMILY["малая"], known)
print(
    "потеря в начале и в конце:",
    decimal(small.losses[0]),
    "→",
    decimal(small.losses[-1]),
)

# %% [markdown]
# Десять запросов — в духе исходной лабораторной. Там спрашивали о кофе, рисе джоллоф и народе масаи; здесь — об
# африканских странах, языках и городах.

# %%
asked = fixed_prompts(known)
by_prompt = {fact.prompt: fact for fact in asked}
for prompt in by_prompt:
    print(prompt)

# %% [markdown]
# ### Упражнение 1. Собрать ответы и засечь время
#
# Напишите `collect_generations(generate, prompts)`. Функция `generate` получает запрос и возвращает
# продолжение. Пройдите по запросам в цикле, соберите ответы в список и верните пару: список и время всего
# цикла в секундах.


# %% tags=["exercise"]
import time


def collect_generations(generate, prompts):
    """Ответы по порядку запросов и время цикла."""
    answers, seconds = [], ...
    # ваш цикл
    return answers, seconds


# %% [markdown]
# Застряли? На странице сайта жмите «Подсказка», в Jupyter запускайте следующую ячейку, каждый раз с номером
# побольше. Решение сложено под ней.

# %%
hint("7.1/collect", 1)


# %% tags=["solution"]
import time

# Ваш ответ, если он есть, остаётся на месте.
if "collect_generations" not in globals():

    def collect_generations(generate, prompts):
        """Часы пускают до цикла и останавливают после него."""
        start = time.perf_counter()
        answers = [generate(prompt) for prompt in prompts]
        return answers, time.perf_counter() - start


# %% tags=["check"]
check("7.1/collect", collect_generations)

# %% [markdown]
# Перед замером — разогрев: один запрос, десять токенов. Первый вызов платит за то, чего больше не повторится.
# Потом все десять, жадно, не больше пятидесяти новых токенов на запрос.


# %%
def voice(model):
    """Функция «запрос → продолжение» для одной модели; заодно разогрев."""
    model.answer(asked[0], max_new_tokens=10)
    return lambda prompt: model.answer(by_prompt[prompt], max_new_tokens=50)


answers, seconds = collect_generations(voice(small), list(by_prompt))
timed = isinstance(seconds, (int, float))
print(
    "собрано ответов:", len(answers), " время:", duration(seconds) if timed else "—"
)

# %% [markdown]
# Чтобы урок не зависел от вашей функции, ответы для таблиц он собирает своей.


# %%
def ask(model):
    """Ответы на десять запросов."""
    generate = voice(model)
    return [generate(prompt) for prompt in by_prompt]


small_answers = ask(small)
small_recall, small_losses = recalled(small, known), small.losses
print("вспомнила фактов:", percent(sum(small_recall) / len(known), 0))

# %% [markdown]
# ### Освободить память
#
# Прежде чем загрузить большую модель, малую удаляют. Здесь это привычка, а на карте с 16 ГБ — необходимость:
# две настоящие модели рядом не поместятся. Исходная лабораторная перед этим ещё и разрешает занять карту
# целиком.

# %%
small_bytes = sum(parameter.nbytes for parameter in small.model.parameters())
del small
gc.collect()
print("освобождено:", binary_bytes(small_bytes, 3))

# %% [markdown]
# ## Большая модель
#
# :::{admonition} Предскажите
# :class: hint
#
# Запишите два числа: какую долю фактов вспомнит большая модель и во сколько раз дольше будет отвечать.
# :::

# %%
large = restore(FAMILY["большая"], known)
print(
    "потеря в начале и в конце:",
    decimal(large.losses[0]),
    "→",
    decimal(large.losses[-1]),
)

# %% [markdown]
# ### Упражнение 2. То же с большой
#
# Вызовите свою функцию ещё раз — теперь с большой моделью. `voice(large)` — её `generate`, запросы —
# `list(by_prompt)`.


# %% tags=["exercise"]
large_answers, large_seconds = [], ...  # ваш вызов collect_generations

# %% tags=["solution"]
if "large_answers" not in globals():  # ваш ответ, если он есть, остаётся на месте
    large_answers, large_seconds = collect_generations(voice(large), list(by_prompt))

# %% tags=["check"]
right_answers = ask(large)
if large_seconds is ...:
    print("Ещё не начато: вызовите collect_generations с большой моделью.")
elif large_answers == right_answers:
    print("Верно: ответы большой модели собраны все и по порядку.")
elif large_answers == small_answers:
    print("Неверно: это ответы малой модели. Передайте voice(large).")
else:
    print(
        f"Неверно: собрано ответов {len(large_answers)}, а по порядку нужны все {len(asked)}."
    )

# %% [markdown]
# ## Ответы рядом

# %%
large_recall = recalled(large, known)
small_right = sum(
    answer == fact.answer for fact, answer in zip(asked, small_answers, strict=True)
)
large_right = sum(
    answer == fact.answer for fact, answer in zip(asked, right_answers, strict=True)
)


def marked(answer, fact):
    """Ответ модели с пометкой; пустой тоже виден."""
    return ("✓ " if answer == fact.answer else "✗ ") + (answer or "(пусто)")


table(
    ["запрос", "верно", "малая", "большая"],
    [
        (fact.prompt, fact.answer, marked(mine, fact), marked(theirs, fact))
        for fact, mine, theirs in zip(
            asked, small_answers, right_answers, strict=True
        )
    ],
    "Десять запросов, жадная генерация",
)

# %% [markdown]
# Всмотритесь в ошибки малой модели. Она не молчит, а отвечает *похоже*: на вопрос о коде — тремя буквами, на
# вопрос о городе — страной; бывает, складывает слово, которого нет. Вид ответа она выучила, а сам факт — нет. По
# одному такому ответу ошибку не всегда распознать.
#
# Десять запросов — мало для вывода. Спросим всё, что модели учили.

# %% tags=["hide-input"]
rows = []
for relation in RELATIONS:
    places = [i for i, fact in enumerate(known) if fact.relation == relation]
    shares = [
        sum(recall[i] for i in places) / len(places)
        for recall in (small_recall, large_recall)
    ]
    rows.append((relation, len(places), *(percent(share, 0) for share in shares)))
small_share, large_share = (
    sum(recall) / len(known) for recall in (small_recall, large_recall)
)
rows.append(("всего", len(known), percent(small_share, 0), percent(large_share, 0)))
table(
    ["отношение", "фактов", "малая", "большая"],
    rows,
    "Доля фактов, которую модель вспомнила до буквы",
)

# %% tags=["hide-input"]
epochs = range(1, len(large.losses) + 1)
lines(
    {
        "малая": list(zip(epochs, small_losses, strict=True)),
        "большая": list(zip(epochs, large.losses, strict=True)),
    },
    name="losses",
    title="Потеря во время обучения",
    x="эпоха",
    y="нат на токен ответа",
    alt=(
        f"Обе потери падают. У малой модели — с {decimal(small_losses[0], 1)} до {decimal(small_losses[-1], 1)}, у "
        f"большой — с {decimal(large.losses[0], 1)} до {decimal(large.losses[-1], 1)}."
    ),
    caption="Рецепты, данные и порядок шагов одинаковы; кривая малой ложится раньше: ей некуда складывать факты.",
)

# %%
assert len(small_losses) == len(large.losses)
assert (
    large_share - small_share > 0.3
)  # большая помнит больше хотя бы на 30 процентных пунктов
assert large_right > small_right

# %% tags=["remove-cell"]
POINTS = ("процентный пункт", "процентных пункта", "процентных пунктов")
prose(
    r_small=percent(small_share, 0),
    r_large=percent(large_share, 0),
    r_gap=number(100 * (large_share - small_share), 0),
    r_points=plural(round(100 * (large_share - small_share)), *POINTS),
    r_small_right=str(small_right),
    r_large_right=str(large_right),
    r_times=decimal(large_share / small_share, 1),
    r_small_loss=decimal(small_losses[-1]),
    r_large_loss=decimal(large.losses[-1]),
)

# %% [markdown]
# Малая помнит {glue:text}`r_small` фактов, большая — {glue:text}`r_large`: на {glue:text}`r_gap`
# {glue:text}`r_points` больше. Потеря говорит о том же другими словами: {glue:text}`r_small_loss` против
# {glue:text}`r_large_loss` нат на токен ответа. Из десяти запросов верны {glue:text}`r_small_right` и
# {glue:text}`r_large_right`.
#
# Заметьте: параметров больше в {glue:text}`z_ratio`, а фактов — всего в {glue:text}`r_times`. Когда
# большая помнит почти всё, расти ей некуда; отдача от размера зависит от того, чего ещё не хватало.
#
# ## Время: прогноз
#
# Шаг {term}`декодирования <декодирование>` читает все веса ради одного токена. Если они лежат в памяти, шаг не
# быстрее, чем память отдаёт эти байты, — так говорит {term}`рулайн`. Скорость памяти этого компьютера мы измерили
# в самом начале.

# %%
steps = 50  # новых токенов на запрос
prompt = large.tokenizer.encode(asked[0].prompt).ids
average_length = len(prompt) + steps // 2
floor = {
    name: decode_step_time(r.spec, 1, average_length, here, "fp32")
    for name, r in FAMILY.items()
}
print("полоса памяти: ", binary_bytes(here.bandwidth_bytes_per_s, 3) + "/с")
for name, step in floor.items():
    print(f"{name}: {duration(step.seconds)} на токен, упирается в {step.bound}")

# %% [markdown]
# ## Время: измерение
#
# Замеры, сделанные друг за другом, сравнивать опасно: машина успевает измениться. Поэтому модели отвечают
# попеременно, круг за кругом, и делятся друг на друга времена одного круга. Каждый ответ — ровно
# пятьдесят токенов. Время ваших циклов из упражнений 1 и 2 сравнивать нельзя: каждый пройден один раз, порознь,
# и ответы в них разной длины.

# %%
models = {name: restore(recipe, known).model for name, recipe in FAMILY.items()}
runs = {
    name: (lambda model=model: model.generate([prompt], steps))
    for name, model in models.items()
}
samples = alternate(runs, torch.device("cpu"), warmup=1, repeats=9)
slower = ratio(samples, "большая", "малая")
token = {name: measured.median / steps for name, measured in samples.items()}

# %% tags=["hide-input"]
overhead = (token["малая"] - floor["малая"].seconds) / small_spec.L  # с на слой
with_overhead = {
    name: floor[name].seconds + overhead * recipe.spec.L
    for name, recipe in FAMILY.items()
}
table(
    ["", *FAMILY],
    [
        (
            "прогноз по рулайну, на токен",
            *(duration(step.seconds) for step in floor.values()),
        ),
        (
            "прогноз с накладными расходами на слой",
            "—",
            duration(with_overhead["большая"]),
        ),
        ("измерено, на токен", *(duration(seconds) for seconds in token.values())),
        (
            "токенов в секунду",
            *(number(1 / seconds, 0) for seconds in token.values()),
        ),
        (
            "разброс замеров",
            *(percent(measured.spread, 0) for measured in samples.values()),
        ),
    ],
    "Время ответа: измерено на этой машине при этой сборке",
)

# %% tags=["remove-cell"]
prose(
    t_slower=counted(slower, *TIMES, digits=1),
    t_small_gap=counted(token["малая"] / floor["малая"].seconds, *TIMES),
    t_large_gap=decimal(token["большая"] / floor["большая"].seconds, 1),
    t_overhead=duration(overhead, 2),
    t_forecast_gap=decimal(token["большая"] / with_overhead["большая"], 2),
)

# %% [markdown]
# Большая медленнее в {glue:text}`t_slower` — хотя параметров у неё больше в {glue:text}`z_ratio`.
# Рулайн промахнулся: измеренное больше его прогноза у малой модели в {glue:text}`t_small_gap`, у большой — в
# {glue:text}`t_large_gap`.
#
# Почему? Веса обеих моделей помещаются в кеш процессора, и читать их почти ничего не стоит. Время уходит на
# **запуск операций**: на каждый слой их десятка два, и каждая обходится Python и PyTorch в микросекунды,
# сколько бы чисел она ни перемножала. Поделим время малой модели на её слои — выйдет около
# {glue:text}`t_overhead` на слой. Прибавим столько же за каждый слой большой: отношение измеренного к прогнозу
# станет {glue:text}`t_forecast_gap`.
#
# У настоящих моделей наоборот: накладные расходы те же, а веса — гигабайты. Там рулайн точен, и время растёт
# вместе с параметрами.
#
# ## Память: прогноз и измерение
#
# С памятью проще: она складывается из тех же форм, что и модель.

# %%
length = len(prompt) + steps
accounts = {
    name: inference_memory(recipe.spec, 1, length, "fp32")
    for name, recipe in FAMILY.items()
}
held = {
    name: (
        sum(p.nbytes for p in model.parameters()),
        model.new_cache(1, length).nbytes,
    )
    for name, model in models.items()
}
for name, account in accounts.items():
    assert held[name] == (account["weights"], account["kv_cache"])  # до байта

table(
    ["", *FAMILY],
    [
        (
            "веса, прогноз",
            *(binary_bytes(account["weights"], 3) for account in accounts.values()),
        ),
        (
            "веса, измерено",
            *(binary_bytes(weights, 3) for weights, _ in held.values()),
        ),
        (
            "кеш KV, прогноз",
            *(binary_bytes(account["kv_cache"], 3) for account in accounts.values()),
        ),
        ("кеш KV, измерено", *(binary_bytes(cache, 3) for _, cache in held.values())),
    ],
    "Память ответа из пятидесяти токенов, fp32",
)

# %% [markdown]
# ### Упражнение 3. Время словами
#
# Напишите `format_duration(seconds)`: целое число секунд → «1 минута 5 секунд». Минуты называются, только если
# они есть, секунды — всегда. Следите за формой слова: 1 секунда, 2 секунды, 5 секунд.


# %% tags=["exercise"]
def format_duration(seconds):
    """Длительность по-русски."""
    return ...  # замените многоточие


# %%
hint("7.1/duration", 1)


# %% tags=["solution"]
if "format_duration" not in globals():  # ваш ответ, если он есть, остаётся на месте

    def form(count, one, few, many):
        """Форма слова: 11–14 — особый случай, дальше решает последняя цифра."""
        if count % 100 in (11, 12, 13, 14):
            return many
        return {1: one, 2: few, 3: few, 4: few}.get(count % 10, many)

    def format_duration(seconds):
        """Минуты и остаток, у каждого числа своя форма слова."""
        minutes, rest = divmod(seconds, 60)
        words = (
            [f"{minutes} {form(minutes, 'минута', 'минуты', 'минут')}"]
            if minutes
            else []
        )
        return " ".join(
            [*words, f"{rest} {form(rest, 'секунда', 'секунды', 'секунд')}"]
        )


# %% tags=["check"]
check("7.1/duration", format_duration)

# %% [markdown]
# Ответы на все факты по одному, один за другим, заняли бы столько:

# %%
for name, seconds in token.items():
    answer_tokens = sum(
        len(large.tokenizer.encode(fact.answer).ids) + 1 for fact in known
    )
    print(f"{name}: {format_duration(round(seconds * answer_tokens))}")

# %% [markdown]
# ## Что выбрать
#
# Соберём измеренное в одну строку на модель.

# %% tags=["hide-input"]
table(
    ["модель", "параметров", "потеря", "вспомнила", "на токен", "токенов/с", "веса"],
    [
        (
            name,
            short(sizes[name].total),
            decimal(loss),
            percent(share, 0),
            duration(token[name]),
            number(1 / token[name], 0),
            binary_bytes(held[name][0], 3),
        )
        for name, loss, share in (
            ("малая", small_losses[-1], small_share),
            ("большая", large.losses[-1], large_share),
        )
    ],
    "Качество и цена; время измерено на этой машине при этой сборке",
)

# %% [markdown]
# Прежде чем раскрыть ответ, решите сами, какую модель взять:
#
# 1. подсказка по мере набора: ответ нужен за десяток миллисекунд, промах терпим — человек всё равно
#    посмотрит;
# 2. справочник для школьника: спешить некуда, но ошибка выглядит как факт.
#
# <details class="nanolm-answer"><summary>Обсуждение</summary>
#
# В первой задаче решает задержка. Малая отвечает быстрее в {glue:text}`t_slower`, а её ошибки
# правдоподобны: пользователь поправит. Так выбирают модель для живого чата, где «достаточно хорошо» и сразу
# лучше, чем отлично и потом.
#
# Во второй решает доля верных ответов: {glue:text}`r_small` против {glue:text}`r_large`. Хуже всего, что
# ошибка малой модели похожа на правду, — справочник, который врёт уверенно, бесполезен при любой скорости.
#
# Есть и третье: сколько ответов в секунду отдаёт одна машина и сколько она стоит. Размер модели — это
# {term}`компромисс`, и решает его задача, а не таблица.
#
# </details>
#
# :::{admonition} Запомните
# :class: tip
#
# **Больше параметров — больше помнит и медленнее отвечает, но не в одно и то же число раз.** Здесь модель в
# {glue:text}`z_ratio` больше вспомнила {glue:text}`r_large` фактов вместо {glue:text}`r_small` и отвечает в
# {glue:text}`t_slower` медленнее.
# :::
#
# ## По желанию: Gemma 3 1B и 4B
#
# В исходной лабораторной сравнивали их. Модели весят гигабайты, поэтому урок ничего не скачивает: положите их
# на диск (или примите лицензию и назовите имя на хабе) и укажите адреса переменными окружения
# `NANOLM_GEMMA_SMALL` и `NANOLM_GEMMA_LARGE`. Десять тем те же, что в исходной работе, — на русском и на английском;
# модели не обучены диалогу, поэтому запросы — начала фраз.

# %% tags=["gpu"]
from nanolm import gemma, records

card = torch.device("cuda")
if len(gemma.sources()) == 2:
    real = gemma.compare(gemma.sources(), card)  # малая удаляется до загрузки большой
    records.write(gemma.record(real, card), gemma.record_path())
else:
    print("Адреса моделей не заданы: нужны NANOLM_GEMMA_SMALL и NANOLM_GEMMA_LARGE.")

# %% tags=["hide-input"]
from nanolm import gemma

found = gemma.recorded()
t4 = gpu("t4")
pair = {"Gemma 3 1B": preset("gemma-3-1b"), "Gemma 3 4B": preset("gemma-3-4b")}
forecast = {
    name: decode_step_time(spec, 1, 50, t4, t4.best_16bit)
    for name, spec in pair.items()
}
if found is None:
    caption = "Измерения ещё нет. Прогноз для T4, веса в 16 битах"
    measured_rows = []
else:
    record, answers = (
        found  # ответы моделей — текст: таблица экранирует его, а не исполняет как HTML
    )
    caption = f"Прогноз для T4 и запись: {record['machine']['name']}, {record['measured_at'][:10]}"
    measured_rows = [
        (
            "измерено, на токен",
            *(duration(sum(a.seconds) / a.tokens) for a in answers.values()),
        ),
        ("измерено, веса", *(gib(a.weight_bytes) for a in answers.values())),
    ]
table(
    ["", *pair],
    [
        ("параметров", *(parameter_breakdown(spec).total for spec in pair.values())),
        (
            "веса, прогноз",
            *(
                gib(inference_memory(spec, 1, 100, "bf16")["weights"])
                for spec in pair.values()
            ),
        ),
        (
            "на токен, прогноз",
            *(duration(step.seconds) for step in forecast.values()),
        ),
        (
            "50 токенов на 10 запросов, прогноз",
            *(duration(500 * step.seconds) for step in forecast.values()),
        ),
        *measured_rows,
    ],
    caption,
)

# %% tags=["hide-input"]
if found is None:
    print(
        "Ответов настоящих моделей ещё нет: запись появится после запуска с видеокартой."
    )
    replies = []
else:
    replies = list(
        zip(
            record["workload"]["prompts"],
            *(one.texts for one in answers.values()),
            strict=True,
        )
    )
table(
    ["запрос", *pair], replies, "Двадцать запросов, жадная генерация"
) if replies else None

# %% tags=["remove-cell"]
gemma_small, gemma_large = forecast.values()
prose(
    g_ratio=counted(gemma_large.seconds / gemma_small.seconds, *TIMES, digits=1),
    g_params=decimal(
        parameter_breakdown(pair["Gemma 3 4B"]).total
        / parameter_breakdown(pair["Gemma 3 1B"]).total,
        1,
    ),
)

# %% [markdown]
# По прогнозу большая Gemma медленнее в {glue:text}`g_ratio` — почти настолько, насколько больше
# ({glue:text}`g_params`). Здесь веса — гигабайты, и рулайн близок к правде: накладные расходы на слой теряются
# рядом с их чтением. Авторы исходной лабораторной видят то же самое глазами: 4B заметно медленнее и лучше
# помнит факты — о кофе, о реке, о пословице.
#
# ## Что вы заметили
#
# <details class="nanolm-answer"><summary>Сначала своими словами, потом откройте</summary>
#
# - Малая модель ошибается правдоподобно: форма ответа верна, содержание — нет.
# - Память предсказана до байта, время — нет: у маленьких моделей правят накладные расходы, и рулайн даёт лишь
#   нижнюю границу.
# - Большая модель больше в {glue:text}`z_ratio`, медленнее в {glue:text}`t_slower`, помнит больше в
#   {glue:text}`r_times`. Три разных числа — вот почему «больше» не значит «лучше для этой задачи».
#
# </details>
#
# ## Итоги
#
# Размер покупает память о фактах и платит за неё временем и местом. Выбор модели — компромисс качества и
# скорости, и решать его стоит измерением на своей задаче.
#
# ## Словарь
#
# {term}`параметры` · {term}`эмбеддинг` · {term}`жадная генерация` · {term}`префилл` ·
# {term}`декодирование` · {term}`рулайн` · {term}`кеш KV` · {term}`компромисс`
#
# ## Что читать
#
# - {cite:t}`kaplan2020`, {cite:t}`hoffmann2022` — как качество растёт с размером модели и с данными.
# - {cite:t}`pope2022` — из чего складывается время ответа большой модели.
#
# ## Дальше
#
# Большая модель лучше, но её ещё надо обучить. Сколько операций это стоит — в
# [лабораторной 7.2](lab_7_2_flops.py).
#
# ---
#
# *По задачам и числам курса AI Research Foundations, модуль 7 «Accelerate Your Model», лабораторная 7.1
# (Google DeepMind и University College London; тексты CC BY 4.0, код Apache 2.0; репозиторий
# google-deepmind/ai-foundations). Читали мы её в русском переводе. Это самостоятельная работа: модели, текст,
# код и рисунки свои, запросы — другими словами. Факты — CLDR, Unicode, Inc., через Babel. Подробнее — на
# странице «[Источники и лицензии](../docs/sources.md)».*

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
# # Лабораторная 7.4. Соберите калькулятор памяти
#
# В лабораторной 7.3 модель не поместилась на карту. Здесь мы разложим её память на пять слагаемых, каждое
# посчитаем одной строкой и узнаем, какое из них самое большое. Не то, о котором думают в первую очередь.
#
# :::{admonition} К концу вы сможете
# :class: tip
#
# - посчитать память обучения и вывода по размеру модели, пакету и {term}`точности <точность>`;
# - объяснить, почему большие модели трудно учить на маленьких картах;
# - назвать, чем упрощённый калькулятор отличается от настоящей памяти, и проверить прогноз измерением.
# :::
#
# - **Время:** 15 минут на упражнения и калькулятор; с замечаниями и измерением — около получаса.
# - **Устройство:** любой процессор; видеокарта не нужна.
# - **Нужно знать:** зачем обучению градиенты и что Adam хранит моменты. Хорошо читать рядом с темой
#   смешанной точности: память считается в байтах на параметр.
# - **Обозначения:** в упражнениях величины названы словами: `param_count`, `batch_size`, `max_length`,
#   `num_layers`, `embedding_dim`. На других страницах курса это $P$, $B$, $S$, $L$ и $D$, см.
#   [обозначения](../docs/notation.md). Байты на значение — $b$.
#
# **Задания:** написать пять функций, собрать из них калькулятор, вынести вердикт картам и проверить прогноз
# на настоящей маленькой модели.

# %% [markdown]
# ## Сначала угадайте
#
# 1. Модель в 4 млрд параметров учат в fp32 с Adam. Что займёт больше всего памяти: {term}`параметры`,
#    {term}`градиенты`, {term}`состояние оптимизатора` или {term}`активации`?
# 2. Поместится ли *вывод* этой модели на карту с 16 ГБ в fp32? А в {term}`bfloat16`? А обучение?
# 3. Наша формула активаций будет очень простой. Во сколько раз она ошибётся: на треть, втрое, в тридцать
#    раз?

# %%
from nanolm.budget import (
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.exercises import check, hint
from nanolm.figures import prose, stacked_bars, table
from nanolm.hardware import gpu
from nanolm.spec import Spec
from nanolm.units import (
    GB,
    GIB,
    counted,
    decimal,
    gb,
    gib,
    number,
    percent,
    short,
)
from nanolm.zoo import preset

# %% [markdown]
# ## Сценарий
#
# Числа условные, только для счёта: такой модели нет.

# %%
PARAM_COUNT = 4e9
BYTES_PER_PARAMETER = 4  # fp32; у bfloat16 — 2
BATCH_SIZE = 8
MAX_LENGTH = 1024
NUM_LAYERS = 32
EMBEDDING_DIM = 2560

# %% tags=["hide-input"]
gemma = preset("gemma-3-4b")
gemma_params = parameter_breakdown(gemma).total
table(
    ["", "сценарий", "Gemma 3 4B, текстовая часть"],
    [
        ("параметров", int(PARAM_COUNT), gemma_params),
        ("слоёв", NUM_LAYERS, gemma.L),
        ("ширина", EMBEDDING_DIM, gemma.D),
        ("словарь", "—", gemma.V),
    ],
    "Условная модель и настоящая, на которую она похожа",
)

# %%
assert gemma_params == 3_880_263_168
assert gemma.L == 34

# %% tags=["remove-cell"]
prose(
    u_gap=percent(GIB / GB - 1),
    u_sixteen=gib(16 * GB),
)

# %% [markdown]
# У настоящей модели слоёв больше, параметров чуть меньше. Считать будем по сценарию, а в конце сверимся с
# настоящей.
#
# :::{admonition} Единицы
# :class: warning
#
# Функции возвращают **гибибайты**: байты, делённые на $1024^3$. В исходной лабораторной они подписаны «ГБ».
# {term}`ГиБ` больше {term}`ГБ` на {glue:text}`u_gap`: 16 ГБ — это всего {glue:text}`u_sixteen`.
# :::
#
# ## Упражнение 1. Параметры
#
# Каждый параметр — число, и хранится оно в `bytes_per_param` байтах. Напишите
# `calculate_param_memory(param_count, bytes_per_param)`.


# %% tags=["exercise"]
def calculate_param_memory(param_count, bytes_per_param):
    """Память параметров в ГиБ."""
    return ...  # замените многоточие своей формулой


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сначала байты, потом гибибайты. $1024^3$ в Python — `1024**3`.
#
# </details>
#
# Застряли? На странице сайта жмите «Подсказка», в Jupyter запускайте следующую ячейку: с каждым разом подсказка
# подробнее. Так устроены все пять упражнений. Решение сложено под подсказкой и вашего ответа не заменит: ячейка
# срабатывает, только если имя ещё свободно.

# %% tags=["skip-execution"]
hint("7.4/params")

# %% tags=["solution"]
if "calculate_param_memory" not in globals():  # ваш ответ остаётся на месте

    def calculate_param_memory(param_count, bytes_per_param):
        """Память параметров в ГиБ."""
        return param_count * bytes_per_param / 1024**3


# %% tags=["check"]
check("7.4/params", calculate_param_memory)

# %% [markdown]
# ## Упражнение 2. Входной пакет
#
# Модель получает не текст, а номера токенов: `batch_size` последовательностей по `max_length` номеров.
# Напишите `calculate_input_data_memory(batch_size, max_length, bytes_per_token_id)`.
#
# :::{admonition} Предскажите
# :class: hint
#
# Какую долю памяти займёт вход: проценты, тысячные, миллионные?
# :::


# %% tags=["exercise"]
def calculate_input_data_memory(batch_size, max_length, bytes_per_token_id):
    """Память номеров токенов одного пакета в ГиБ."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько номеров в прямоугольной таблице из `batch_size` строк и `max_length` столбцов?
#
# </details>

# %% tags=["solution"]
if "calculate_input_data_memory" not in globals():

    def calculate_input_data_memory(batch_size, max_length, bytes_per_token_id):
        """Память номеров токенов одного пакета в ГиБ."""
        return batch_size * max_length * bytes_per_token_id / 1024**3


# %% tags=["check"]
check("7.4/input", calculate_input_data_memory)

# %% [markdown]
# ## Упражнение 3. Градиенты
#
# {term}`Обратный проход <обратный проход>` вычисляет для каждого параметра, в какую сторону его двигать.
# Напишите `calculate_gradient_memory(param_count, bytes_per_param)`.


# %% tags=["exercise"]
def calculate_gradient_memory(param_count, bytes_per_param):
    """Память градиентов в ГиБ."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько производных у функции потерь? По одной на каждый аргумент, который можно двигать.
#
# </details>

# %% tags=["solution"]
if "calculate_gradient_memory" not in globals():

    def calculate_gradient_memory(param_count, bytes_per_param):
        """Память градиентов в ГиБ: по числу на параметр."""
        return param_count * bytes_per_param / 1024**3


# %% tags=["check"]
check("7.4/gradients", calculate_gradient_memory)

# %% [markdown]
# ## Упражнение 4. Состояние оптимизатора
#
# Adam помнит о каждом параметре две величины: скользящее среднее градиента и скользящее среднее его
# квадрата. Напишите `calculate_optimizer_memory(param_count, bytes_per_param)`.


# %% tags=["exercise"]
def calculate_optimizer_memory(param_count, bytes_per_param):
    """Память состояния Adam в ГиБ."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Моментов два. И параметр, и градиент уже посчитаны отдельно — сюда они не входят.
#
# </details>

# %% tags=["solution"]
if "calculate_optimizer_memory" not in globals():

    def calculate_optimizer_memory(param_count, bytes_per_param):
        """Память состояния Adam в ГиБ: два момента на параметр."""
        return 2 * param_count * bytes_per_param / 1024**3


# %% tags=["check"]
check("7.4/optimizer", calculate_optimizer_memory)

# %% [markdown]
# ## Упражнение 5. Активации
#
# {term}`Прямой проход <прямой проход>` оставляет обратному промежуточные тензоры. В упрощённом счёте это
# один вектор ширины `embedding_dim` на каждый токен в каждом слое. Напишите
# `calculate_activation_memory(batch_size, max_length, num_layers, embedding_dim, bytes_per_param)`.
#
# :::{admonition} Предскажите
# :class: hint
#
# Пакет удвоили. Какие из пяти слагаемых изменятся?
# :::


# %% tags=["exercise"]
def calculate_activation_memory(
    batch_size, max_length, num_layers, embedding_dim, bytes_per_param
):
    """Память активаций в ГиБ: один вектор на токен в каждом слое."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Токенов в пакете вы уже считали во втором упражнении. Сколько чисел хранит один токен в одном слое? А во
# всех?
#
# </details>

# %% tags=["solution"]
if "calculate_activation_memory" not in globals():

    def calculate_activation_memory(
        batch_size, max_length, num_layers, embedding_dim, bytes_per_param
    ):
        """Память активаций в ГиБ: один вектор на токен в каждом слое."""
        values = batch_size * max_length * num_layers * embedding_dim
        return values * bytes_per_param / 1024**3


# %% tags=["check"]
check("7.4/activations", calculate_activation_memory)

# %% [markdown]
# <details class="nanolm-answer"><summary>Ответ на «предскажите»</summary>
#
# Только вход и активации: в их формулы входит `batch_size`. Параметры, градиенты и моменты от пакета не
# зависят, поэтому одним уменьшением пакета большую модель на карту не посадить.
#
# </details>
#
# ## Калькулятор
#
# Сложим всё. `formulas` — эталонные функции проверки; ваши дают те же числа.

# %%
from nanolm.exercises import formulas


def calculator(b):
    """Память сценария по слагаемым, ГиБ; `b` — байтов на значение."""
    return {
        "параметры": formulas.calculate_param_memory(PARAM_COUNT, b),
        "входной пакет": formulas.calculate_input_data_memory(
            BATCH_SIZE, MAX_LENGTH, b
        ),
        "активации": formulas.calculate_activation_memory(
            BATCH_SIZE, MAX_LENGTH, NUM_LAYERS, EMBEDDING_DIM, b
        ),
        "градиенты": formulas.calculate_gradient_memory(PARAM_COUNT, b),
        "состояние Adam": formulas.calculate_optimizer_memory(PARAM_COUNT, b),
    }


INFERENCE = ("параметры", "входной пакет", "активации")  # без обучения остаются они
fp32, bf16 = calculator(BYTES_PER_PARAMETER), calculator(2)
inference = {
    b: sum(part[name] for name in INFERENCE) for b, part in ((4, fp32), (2, bf16))
}
training = {4: sum(fp32.values()), 2: sum(bf16.values())}


# %% tags=["hide-input"]
def digits(value):
    """Два знака после запятой; у совсем малых чисел — шесть."""
    return decimal(value, 2 if value > 0.01 else 6)


def share(value):
    """Доля от обучения в fp32."""
    return percent(value / training[4], 1 if value > 0.01 else 5)


table(
    ["слагаемое", "fp32, ГиБ", "bf16, ГиБ", "доля обучения, fp32"],
    [
        *(
            (name, digits(fp32[name]), digits(bf16[name]), share(fp32[name]))
            for name in fp32
        ),
        (
            "вывод: параметры, вход, активации",
            digits(inference[4]),
            digits(inference[2]),
            share(inference[4]),
        ),
        (
            "обучение: всё",
            digits(training[4]),
            digits(training[2]),
            share(training[4]),
        ),
    ],
    "Память сценария: 4 млрд параметров, пакет 8 × 1024",
)

# %%
assert [digits(value) for value in fp32.values()] == [
    "14,90",
    "0,000031",
    "2,50",
    "14,90",
    "29,80",
]
assert [digits(value) for value in bf16.values()] == [
    "7,45",
    "0,000015",
    "1,25",
    "7,45",
    "14,90",
]
assert (digits(inference[4]), digits(training[4])) == ("17,40", "62,10")
assert (digits(inference[2]), digits(training[2])) == ("8,70", "31,05")

# %% tags=["hide-input"]
stacked_bars(
    {"обучение, fp32": fp32, "обучение, bf16": bf16}
    | {
        f"вывод, {title}": {name: parts[name] for name in INFERENCE}
        for title, parts in (("fp32", fp32), ("bf16", bf16))
    },
    name="calculator",
    title="Куда уходит память",
    unit="ГиБ",
    label=lambda value: decimal(value, 1),
    threshold=(gpu("t4").usable_bytes / GIB, "доступно на T4"),
    alt=f"Составные столбцы. Обучение в fp32 — {decimal(training[4])} ГиБ, в bf16 — {decimal(training[2])}. "
    f"Вывод в fp32 — {decimal(inference[4])}, в bf16 — {decimal(inference[2])}. Черта — доступная память T4, "
    f"{gib(gpu('t4').usable_bytes)}; левее неё только вывод в bf16.",
    caption="Упрощённый калькулятор. Вход слишком мал, чтобы его увидеть.",
)

# %% tags=["remove-cell"]
prose(
    c_optimizer=decimal(fp32["состояние Adam"]) + "\u00a0ГиБ",
    c_training=decimal(training[4]) + "\u00a0ГиБ",
    c_ratio=decimal(training[4] / inference[4], 1),
    c_inference16=decimal(inference[2]) + "\u00a0ГиБ",
    c_share=percent(fp32["состояние Adam"] / training[4], 0),
    c_states=gb(16 * PARAM_COUNT, 0),
    c_states_gib=gib(16 * PARAM_COUNT),
)

# %% [markdown]
# ### Что вы заметили
#
# - Самое большое слагаемое — **состояние оптимизатора**, {glue:text}`c_optimizer`, {glue:text}`c_share`
#   всей памяти. Вдвое больше самих параметров.
# - Обучение в fp32 просит $4 + 4 + 8 = 16$ байт на параметр: вес, градиент, два момента. Для 4 млрд
#   параметров это {glue:text}`c_states`, или {glue:text}`c_states_gib`, ещё до первой активации.
# - Вывод легче обучения в {glue:text}`c_ratio` раза: нет ни градиентов, ни моментов.
# - Вход не виден вовсе. Тексты — самое дешёвое, что есть в обучении.
#
# ## Поместится ли
#
# Сравнивать надо не с числом в названии, а с памятью, которую карта отдаёт программе: часть занимают коды
# коррекции ошибок и драйвер.

# %%
CARDS = ["t4", "rtx-4080", "rtx-4090", "v100-32", "rtx-5090", "a100-40", "a100-80"]


def verdict(card, need):
    """Хватает ли доступной памяти; в скобках — сколько остаётся или недостаёт, ГиБ."""
    left = card.usable_bytes / GIB - need
    return f"да (+{decimal(left)})" if left >= 0 else f"нет (−{decimal(-left)})"


# %% tags=["hide-input"]
def short_title(card):
    """Название карты без имени производителя."""
    return card.title.removeprefix("NVIDIA ").removeprefix("GeForce ")


def card_row(card):
    """Карта, доступная память и четыре вердикта."""
    available = ("≈ " if card.usable_is_assumed else "") + decimal(
        card.usable_bytes / GIB
    )
    needs = (inference[4], inference[2], training[4], training[2])
    return (short_title(card), available, *(verdict(card, need) for need in needs))


table(
    [
        "карта",
        "доступно",
        "вывод, fp32",
        "вывод, bf16",
        "обучение, fp32",
        "обучение, bf16",
    ],
    [card_row(gpu(key)) for key in CARDS],
    "Поместится ли, ГиБ. Знак ≈ — доступная память оценена, источника нет",
)

# %%
t4, blackwell = gpu("t4"), gpu("rtx-5090")
assert inference[2] < t4.usable_bytes / GIB < min(inference[4], training[2])
assert 0 < blackwell.usable_bytes / GIB - training[2] < 1  # на 32 ГБ — впритык
assert "bf16" not in gpu("v100-32").flops_per_s
assert "bf16" not in t4.flops_per_s  # Turing считает на тензорных ядрах только fp16

# %% tags=["remove-cell"]
prose(
    v_t4=gib(t4.usable_bytes),
    v_left=gib(blackwell.usable_bytes - training[2] * GIB),
    v_fp16=number(t4.rate("fp16") / t4.rate("fp32"), 0),
)

# %% [markdown]
# - **16 ГБ, T4.** В fp32 не встают ни вывод, ни обучение. В bf16 вывод встаёт: {glue:text}`c_inference16`
#   из {glue:text}`v_t4`. Обучение — нет.
# - **32 ГБ.** Обучение в bf16 входит впритык: на RTX 5090 остаётся {glue:text}`v_left`. Буферам, логитам и
#   контексту CUDA места не осталось, а упрощённый счёт о них не знает.
# - **80 ГБ.** Обучение в fp32 входит — по этому счёту.
#
# :::{admonition} T4 и bfloat16
# :class: note
#
# По *памяти* bf16 на T4 помещается. Но тензорных ядер для bf16 у неё нет: это поколение Turing, а появились
# они в следующем (у V100 их тоже нет). Ради
# *скорости* на T4 берут fp16, с ним тензорные ядра в {glue:text}`v_fp16` раз быстрее обычного fp32. Байт
# столько же, и вердикт по памяти не меняется.
# :::
#
# ## Честные замечания
#
# Калькулятор простой, и в пяти местах он расходится с правдой. Проверим каждое.
#
# ### 1. Активаций при обучении гораздо больше
#
# «Один вектор на слой» — это вход слоя. Но обратному проходу нужны и выходы норм, и запросы, ключи,
# значения, и четыре тензора полносвязного блока. Возьмём модель с геометрией сценария и настоящую Gemma и
# спросим точный счёт: что автоматическое дифференцирование на самом деле держит до обратного прохода.

# %%
# Классический блок той же ширины и глубины; словарь — как у Gemma, голова отдельная.
lookalike = Spec(V=2**18, D=EMBEDDING_DIM, L=NUM_LAYERS, N=20, S=MAX_LENGTH)
models = {"геометрия сценария": lookalike, "Gemma 3 4B": gemma}


def simple_activations(spec):
    """Упрощённая формула на геометрии модели, ГиБ в fp32."""
    return formulas.calculate_activation_memory(
        BATCH_SIZE, MAX_LENGTH, spec.L, spec.D, 4
    )


exact = {
    name: training_memory(spec, B=BATCH_SIZE, S=MAX_LENGTH, recipe="fp32")
    for name, spec in models.items()
}

# %% tags=["hide-input"]
table(
    [
        "модель",
        "параметров",
        "по формуле, ГиБ",
        "хранится, ГиБ",
        "во сколько раз",
        "логиты и буферы, ГиБ",
    ],
    [
        (
            name,
            short(parameter_breakdown(spec).total),
            simple_activations(spec),
            exact[name]["activations"] / GIB,
            exact[name]["activations"] / GIB / simple_activations(spec),
            (exact[name]["logits"] + exact[name]["workspace"]) / GIB,
        )
        for name, spec in models.items()
    ],
    "Активации обучения, fp32, слитое внимание, пакет 8 × 1024",
)

# %%
ratio = exact["Gemma 3 4B"]["activations"] / GIB / simple_activations(gemma)
assert ratio > 10

# %% tags=["remove-cell"]
prose(
    a_ratio=counted(ratio, "раз", "раза", "раз"),
    a_scenario_ratio=number(
        exact["геометрия сценария"]["activations"]
        / GIB
        / simple_activations(lookalike),
        0,
    ),
    a_gemma=gib(exact["Gemma 3 4B"]["activations"], 1),
    a_extra=gib(exact["Gemma 3 4B"]["logits"] + exact["Gemma 3 4B"]["workspace"], 1),
    a_vocabulary=number(gemma.V),
)

# %% [markdown]
# Формула ошиблась в {glue:text}`a_scenario_ratio`–{glue:text}`a_ratio`. У Gemma активации —
# {glue:text}`a_gemma`, больше состояний оптимизатора. И ещё {glue:text}`a_extra` — логиты и временные
# буферы: каждый токен пакета получает оценку для каждого из {glue:text}`a_vocabulary` слов словаря. В
# калькуляторе этой строки нет вообще.
#
# ### 2. А при выводе — гораздо меньше
#
# При выводе обратного прохода не будет, и слой, отработав, свои тензоры отпускает. Живут только те, что
# нужны сейчас. Зато вывод хранит кеш ключей и значений, о котором калькулятор молчит.


# %%
def inference_row(name, spec):
    """Формула, буферы самой тяжёлой части слоя и кеш KV, ГиБ в fp32."""
    account = inference_memory(spec, B=BATCH_SIZE, S=MAX_LENGTH, dtype="fp32")
    buffers = account.peak - account.total
    return (name, simple_activations(spec), buffers / GIB, account["kv_cache"] / GIB)


inference_rows = [inference_row(name, spec) for name, spec in models.items()]
table(
    ["модель", "активации по формуле", "буферы на самом деле", "кеш KV"],
    inference_rows,
    "Вывод, заполнение контекста 8 × 1024, fp32, ГиБ",
)

# %%
assert all(buffers < by_formula for _, by_formula, buffers, _ in inference_rows)
# У классического блока кеш — ровно две упрощённые формулы: ключ и значение вместо одного вектора.
cache = kv_cache_bytes(lookalike, BATCH_SIZE, MAX_LENGTH, dtype="fp32").total
assert cache == 2 * simple_activations(lookalike) * GIB

# %% tags=["remove-cell"]
one_token = inference_memory(gemma, B=BATCH_SIZE, S=1, dtype="fp32")
prose(
    i_buffers=decimal(inference_rows[1][2]) + "\u00a0ГиБ",
    i_formula=decimal(inference_rows[1][1]) + "\u00a0ГиБ",
    i_cache=decimal(inference_rows[1][3]) + "\u00a0ГиБ",
    i_step=decimal((one_token.peak - one_token.total) / GIB, 3) + "\u00a0ГиБ",
)

# %% [markdown]
# У Gemma при чтении запроса живы {glue:text}`i_buffers` буферов, а не {glue:text}`i_formula`. Дальше модель
# пишет по токену, и буферам хватает {glue:text}`i_step`. Кеш — {glue:text}`i_cache`. Любопытно, что у
# классического блока он ровно вдвое больше «активаций по формуле»: ключ и значение на токен в каждом слое.
# По величине формула похожа на правду, но случайно: описывает она не то, что хранится.
#
# ### 3. Номера токенов от bf16 не худеют
#
# В таблице вход в bf16 вдвое меньше. На деле номер токена — целое число, и к точности вычислений он
# отношения не имеет. PyTorch хранит номера как `int64`, по восемь байт, и рядом — столько же номеров верных
# ответов.

# %%
inputs = {
    recipe: training_memory(gemma, BATCH_SIZE, MAX_LENGTH, recipe)["input"]
    for recipe in ("fp32", "bf16")
}
for recipe, size in inputs.items():
    print(f"вход, {recipe}:", counted(size, "байт", "байта", "байт"))
assert inputs["fp32"] == inputs["bf16"] == 2 * 8 * BATCH_SIZE * MAX_LENGTH

# %% [markdown]
# К счастью, это слагаемое ни на что не влияет.
#
# ### 4. Моменты обычно остаются в fp32
#
# Столбец «bf16» обещает ровно половину всего. Так бывает, только если и моменты хранить в bf16, а у него
# около трёх верных цифр: мелкий шаг теряется при сложении. Обычная {term}`смешанная точность` держит в bf16
# веса и градиенты, а моменты и ещё одну, точную копию весов — в fp32.

# %%
RECIPES = {"fp32": "чистая fp32", "mixed": "смешанная", "bf16": "чистая bf16"}
STATES = ["weights", "master_weights", "gradients", "optimizer"]


# %% tags=["hide-input"]
def recipe_row(recipe, title):
    """Байт на параметр по статьям, сумма и сколько это для 4 млрд параметров."""
    account = training_memory(gemma, recipe=recipe)
    bytes_each = [round(account[part] / gemma_params) for part in STATES]
    return (
        title,
        *map(str, bytes_each),
        str(sum(bytes_each)),
        sum(bytes_each) * PARAM_COUNT / GIB,
    )


table(
    [
        "рецепт",
        "вес",
        "точная копия",
        "градиент",
        "моменты",
        "всего, байт",
        "4 млрд, ГиБ",
    ],
    [recipe_row(*row) for row in RECIPES.items()],
    "Байт на параметр",
)

# %% [markdown]
# Смешанная точность оставляет те же 16 байт. Она экономит время и активации, но не состояния.
#
# ### 5. ГБ — не ГиБ

# %%
print("веса сценария:", gb(4 * PARAM_COUNT), "=", gib(4 * PARAM_COUNT))
print("T4 на «16 ГБ», доступно:", gib(t4.usable_bytes), "=", gb(t4.usable_bytes))
assert round(100 * (GIB / GB - 1), 1) == 7.4

# %% tags=["remove-cell"]
prose(
    g_weights_gb=gb(4 * PARAM_COUNT, 1),
    g_weights_gib=gib(4 * PARAM_COUNT),
    g_gemma=gib(4 * gemma_params, 3),
    g_free=gib(t4.usable_bytes - 4 * gemma_params),
    g_usable=gib(t4.usable_bytes),
    g_share=gib(0.9 * t4.usable_bytes, 1),
)

# %% [markdown]
# {glue:text}`g_weights_gb` весов «помещаются» в 16 ГБ, но это {glue:text}`g_weights_gib`, а у T4 доступно
# {glue:text}`g_usable`. Настоящая Gemma, {glue:text}`g_gemma`, загрузилась бы, оставив
# {glue:text}`g_free` — если отдать ей всю карту. Если отдать 0,9, как в лабораторной 7.3, — нет:
# {glue:text}`g_share`. Семь процентов решают, где вырастет стена.
#
# ## Настоящая Gemma 3 4B
#
# Теперь весь счёт без упрощений: логиты, буферы, настоящие активации.

# %% tags=["hide-input"]
TITLES = {
    "параметры": ("weights", "master_weights"),
    "градиенты": ("gradients",),
    "моменты": ("optimizer",),
    "активации": ("activations",),
    "логиты и буферы": ("logits", "workspace", "input"),
}


def grouped(account):
    """Компоненты счёта, собранные в пять строк, ГиБ."""
    return {
        title: sum(account[part] for part in parts) / GIB
        for title, parts in TITLES.items()
    }


whole = {
    title: training_memory(gemma, B=BATCH_SIZE, S=MAX_LENGTH, recipe=recipe)
    for recipe, title in RECIPES.items()
}
stacked_bars(
    {title: grouped(account) for title, account in whole.items()}
    | {
        "калькулятор, fp32": {
            "параметры": fp32["параметры"],
            "градиенты": fp32["градиенты"],
            "моменты": fp32["состояние Adam"],
            "активации": fp32["активации"],
            "логиты и буферы": fp32["входной пакет"],
        }
    },
    name="gemma-training",
    title="Обучение Gemma 3 4B: точный счёт и калькулятор",
    unit="ГиБ",
    label=lambda value: number(value, 0),
    threshold=(gpu("a100-80").usable_bytes / GIB, "доступно на A100"),
    alt="Составные столбцы, ГиБ: "
    + "; ".join(
        f"{title} — {gib(account.total, 0)}" for title, account in whole.items()
    )
    + f"; упрощённый калькулятор — {decimal(training[4], 0)}. Черта — доступная память A100 на 80 ГБ, "
    f"{gib(gpu('a100-80').usable_bytes, 0)}.",
    caption="Пакет 8 × 1024, AdamW, слитое внимание, без чекпоинтинга. Состояния калькулятор считает верно, "
    "активаций и логитов почти не видит.",
)

# %% tags=["hide-input"]
table(
    ["слагаемое, ГиБ", *RECIPES.values()],
    [
        *(
            (part, *(grouped(account)[part] for account in whole.values()))
            for part in TITLES
        ),
        ("всего", *(account.total / GIB for account in whole.values())),
    ],
    "Обучение Gemma 3 4B, пакет 8 × 1024",
)

# %% tags=["remove-cell"]
prose(
    r_fp32=gib(whole["чистая fp32"].total, 0),
    r_more=decimal(whole["чистая fp32"].total / GIB / training[4], 1),
)

# %% [markdown]
# Вместо {glue:text}`c_training` — {glue:text}`r_fp32`, больше в {glue:text}`r_more` раза. Калькулятор из пяти
# строк верен там, где речь о параметрах: веса, градиенты, моменты. Он отвечает на вопрос «может ли это
# вообще поместиться»: если состояния не встают, остальное не важно. На вопрос «поместится ли» отвечает
# только точный счёт.
#
# ## Проверка измерением
#
# А верен ли сам точный счёт? Возьмём NanoLM, которая учится на любом ноутбуке, и поставим рядом прогноз и
# измерение. Проба `nanolm.probe` делает настоящий шаг обучения: параметры, градиенты и моменты она считает
# по тензорам, а вход, активации и логиты — перехватив всё, что прямой проход оставил обратному. Пик берётся
# из событий распределителя памяти.

# %%
small = Spec(V=1000, D=192, L=4, N=6, K=2, F=512, S=128)
B, S = 4, 128
forecast = training_memory(small, B=B, S=S, recipe="fp32")
try:
    from nanolm.probe import verify
except ImportError:
    rows = {}
    print("PyTorch не установлен: измерение пропущено, ниже только прогноз")
else:
    rows = {row.name: row for row in verify(small, B=B, S=S, recipe="fp32")}
    assert all(row.passed for row in rows.values())

# %% tags=["hide-input"]
PARTS = {
    "параметры": ("weights", forecast["weights"]),
    "вход": ("saved.input", forecast["input"]),
    "активации": ("saved.activations", forecast["activations"]),
    "логиты": ("saved.logits", forecast["logits"]),
    "градиенты": ("gradients", forecast["gradients"]),
    "моменты Adam": ("optimizer", forecast["optimizer"]),
    "пик шага": ("peak", forecast.total),
}
predicted = {name: value for name, (_, value) in PARTS.items()}
measured = {name: rows[row].measured for name, (row, _) in PARTS.items() if rows}
table(
    ["слагаемое", "прогноз, байт", "измерено, байт", "разница"],
    [
        (
            name,
            value,
            measured.get(name, "—"),
            measured[name] - value if measured else "—",
        )
        for name, value in predicted.items()
    ],
    "NanoLM, шаг обучения на процессоре, fp32, пакет 4 × 128",
)

# %%
for name in measured.keys() - {"пик шага"}:
    assert measured[name] == predicted[name], name

# %% tags=["remove-cell"]
by_formula = formulas.calculate_activation_memory(B, S, small.L, small.D, 4) * GIB
peak_gap = abs(rows["peak"].measured - forecast.total) if rows else 0
prose(
    p_result="сошлись до байта"
    if measured
    else "сверить не удалось: PyTorch не установлен",
    p_peak=counted(peak_gap, "байт", "байта", "байт") if rows else "не измерена",
    p_tolerance=percent(rows["peak"].tolerance, 0) if rows else "несколько процентов",
    p_activations=number(forecast["activations"]),
    p_formula=counted(by_formula, "байт", "байта", "байт"),
    p_ratio=counted(forecast["activations"] / by_formula, "раз", "раза", "раз"),
)

# %% [markdown]
# Прогноз и измерение {glue:text}`p_result`. У пика допуск — {glue:text}`p_tolerance`: кроме тензоров модели,
# в нём живут рабочие буферы ядер. Здесь разница — {glue:text}`p_peak`. Упрощённая формула дала бы для
# активаций {glue:text}`p_formula` вместо {glue:text}`p_activations`, в {glue:text}`p_ratio` меньше.
# Так же проверяется любая геометрия: `python -m nanolm.probe verify --help`.
#
# ## Что поможет поместиться
#
# Вернёмся к Gemma и будем убирать по одному препятствию. Каждая строка добавляет меру к предыдущей.

# %%
STEPS = {
    "fp32, пакет 8": {"B": 8, "recipe": "fp32"},
    "смешанная точность": {"recipe": "mixed"},
    "+ полный чекпоинтинг": {"checkpointing": "full"},
    "+ микропакет 1 вместо 8": {"B": 1},
    "+ 8-битный Adam": {"optimizer": "adamw8bit"},
    "+ чистая bf16, без точной копии": {"recipe": "bf16"},
}
LADDER = ["t4", "rtx-4090", "rtx-5090", "a100-40", "a100-80", "h200"]


def smallest_card(need):
    """Первая карта лестницы, чьей доступной памяти хватает, и сколько на ней остаётся."""
    for card in map(gpu, LADDER):
        if card.usable_bytes >= need:
            return short_title(card), gib(card.usable_bytes - need, 1)
    return "ни одна из этих", "—"


def ladder():
    """Строки таблицы: меры накапливаются."""
    options = {}
    for title, change in STEPS.items():
        options |= change
        account = training_memory(gemma, S=MAX_LENGTH, **options)
        states = sum(account[part] for part in STATES)
        sizes = (account.total, states, account["activations"])
        yield title, *sizes, *smallest_card(account.total)


steps = list(ladder())

# %% tags=["hide-input"]
table(
    [
        "мера",
        "всего, ГиБ",
        "состояния, ГиБ",
        "активации, ГиБ",
        "наименьшая карта",
        "остаётся",
    ],
    [
        (title, *(size / GIB for size in sizes), card, left)
        for title, *sizes, card, left in steps
    ],
    "Обучение всех весов Gemma 3 4B, контекст 1024",
)

# %%
totals = [total for _, total, *_ in steps]
assert totals == sorted(totals, reverse=True)  # каждая мера помогает
assert totals[-1] > t4.usable_bytes  # и всё же не T4

# %% tags=["remove-cell"]
prose(
    h_first=gib(totals[0], 0),
    h_last=gib(totals[-1], 1),
    h_checkpoint=gib(steps[1][3] - steps[2][3], 0),
    h_micro=gib(totals[2] - totals[3], 0),
    h_8bit=gib(totals[3] - totals[4], 0),
    h_card=steps[-1][4],
    h_t4=gib(t4.usable_bytes),
)

# %% [markdown]
# - **{term}`Чекпоинтинг <чекпоинтинг>`** {cite}`korthikanti2022` хранит только входы слоёв и пересчитывает
#   остальное: минус {glue:text}`h_checkpoint` активаций за лишний прямой проход.
# - **{term}`Микропакет <микропакет>`.** Восемь проходов по одной последовательности с накоплением градиентов
#   дают тот же шаг, что и один проход по восьми: минус {glue:text}`h_micro`.
# - **8-битный Adam** сжимает моменты: минус {glue:text}`h_8bit`. Теперь мешают только состояния.
# - **Чистая bf16** убирает точную копию весов. Память падает до {glue:text}`h_last`; цена — качество.
#
# Было {glue:text}`h_first`, стало {glue:text}`h_last`. Наименьшая подходящая карта — {glue:text}`h_card`. До T4
# с её {glue:text}`h_t4` не дошли даже со всеми мерами: веса, градиенты и сжатые моменты занимают больше.
# Дальше остаётся делить модель между картами или не обучать её целиком.
#
# Последний столбец стоит принимать всерьёз: на настоящей карте к шагу добавятся контекст CUDA и запас
# распределителя, несколько сотен МиБ. Где остаётся меньше, помещается только на бумаге.
#
# :::{admonition} Запомните
# :class: tip
#
# **16 байт на параметр**: 4 — вес, 4 — градиент, 8 — моменты Adam. Четыре миллиарда параметров —
# {glue:text}`c_states_gib` до первой активации. Смешанная точность этого числа не меняет, а активации —
# отдельный счёт, и часто больший.
# :::
#
# ## Вернёмся к догадкам

# %% tags=["hide-input"]
table(
    ["вопрос", "ответ"],
    [
        (
            "что больше всего",
            f"{max(fp32, key=fp32.get)}: {digits(max(fp32.values()))} ГиБ",
        ),
        (
            "вывод на карте с 16 ГБ",
            f"fp32 — {verdict(t4, inference[4])}, bf16 — {verdict(t4, inference[2])}",
        ),
        ("обучение там же", f"даже в bf16 — {verdict(t4, training[2])}"),
        ("ошибка формулы активаций", f"в {number(ratio, 0)} раз у Gemma 3 4B"),
    ],
)

# %% [markdown]
# ## Итоги
#
# Память обучения — это состояния и активации. Состояния пропорциональны числу параметров и считаются в уме;
# самое большое из них — моменты. Активации пропорциональны пакету и контексту, и простая формула их
# занижает на порядок. Прогноз проверяют по слагаемым, а не по сумме.
#
# ## Словарь
#
# {term}`параметры` · {term}`градиенты` · {term}`состояние оптимизатора` · {term}`активации` ·
# {term}`прямой проход` · {term}`обратный проход` · {term}`точность` · {term}`bfloat16` ·
# {term}`смешанная точность` · {term}`чекпоинтинг` · {term}`микропакет` · {term}`стена памяти` ·
# {term}`нехватка памяти` · {term}`ГиБ` · {term}`ГБ`
#
# ## Что читать
#
# - {cite:t}`korthikanti2022` — что именно хранит блок и что из этого можно пересчитать.
# - Подробный вывод каждого слагаемого, 384 ГиБ активаций Llama-3-8B и кеш — в [уроке девятой
#   недели](week_09_buhgalteriya.py).
#
# ## Дальше
#
# Следующий шаг курса — bfloat16 подробно и накопление градиентов; в этот проект они не входят. Здесь
# продолжение — [неделя 9](week_09_buhgalteriya.py): те же счета, но для любой модели и до последней строки.
#
# ---
#
# *По задачам и числам курса AI Research Foundations, модуль 7 «Accelerate Your Model», лабораторная 7.4
# (Google DeepMind и University College London; тексты CC BY 4.0, код Apache 2.0; репозиторий
# google-deepmind/ai-foundations). Читали мы её в русском переводе. Это самостоятельная работа: текст, код и
# рисунки написаны заново. Подробнее — на странице «[Источники и лицензии](../docs/sources.md)».*

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
# # Лабораторная 7.2. Оцените работу обучения: FLOPs
#
# Прежде чем занять карту на неделю, стоит потратить минуту на одно умножение. Оно скажет, сколько операций
# нужно обучению, а значит — сколько дней, киловатт-часов и денег.
#
# :::{admonition} К концу вы сможете
# :class: tip
#
# - сказать, что такое {term}`FLOPs`, и объяснить, почему работу обучения измеряют в них;
# - оценить обучение по формуле $6PN$ и перевести ответ во время, деньги и энергию;
# - назвать, чего эта формула не учитывает.
# :::
#
# - **Время:** 15 минут; с последним разделом — около двадцати.
# - **Устройство:** любой процессор; видеокарта не нужна.
# - **Нужно знать:** умножение матриц и степени десяти. Хорошо читать рядом с законами масштабирования.
# - **Обозначения:** $P$ — число параметров, $N$ — число токенов обучения. В статьях та же формула записана
#   как $C = 6ND$, где параметры — это $N$, а токены — $D$ {cite}`kaplan2020`. В уроке девятой недели $N$ и
#   $D$ заняты под головы и ширину. Все три азбуки — на [странице обозначений](../docs/notation.md).
#
# **Задания:** написать функцию подсчёта, заполнить таблицу четырёх обучений, подвигать параметры и токены
# на логарифмической шкале.

# %% [markdown]
# ## Сначала угадайте
#
# Запишите ответы, потом читайте дальше.
#
# 1. Сколько операций в произведении матрицы $2 \times 3$ на матрицу $3 \times 2$?
# 2. Во сколько раз обучение PaLM дороже обучения BERT-base: в тысячу, в миллион, в миллиард?
# 3. Модель в 125 млн параметров учат на 2,5 млрд токенов на одной игровой карте. Сколько это: час, полсуток,
#    неделя?

# %%
from nanolm.budget import flops_per_token, parameter_breakdown
from nanolm.exercises import check, hint
from nanolm.exercises.formulas import SCENARIOS
from nanolm.figures import lines, prose, table
from nanolm.hardware import gpu
from nanolm.units import (
    decimal,
    duration,
    number,
    percent,
    prefixed,
    scientific,
    short,
)
from nanolm.zoo import preset

# %% [markdown]
# Отсюда понадобятся карты (`gpu`), точный счёт операций (`flops_per_token`) и запись чисел по-русски.
# `check` проверяет упражнения, `hint` подсказывает.
#
# ## Работа и скорость
#
# {term}`FLOPs` — *сколько* операций с плавающей точкой надо сделать; s на конце — множественное число.
# {term}`FLOPS <FLOP/s>` — *как быстро* устройство их делает: операций в секунду. Слова различает высота
# одной буквы, а разница между ними — как между километрами и километрами в час. Поэтому скорость мы пишем
# иначе: FLOP/s.
#
# $$
# \text{время} = \frac{\text{работа, FLOPs}}{\text{скорость, FLOP/s}}
# $$

# %%
small_work, small_speed = 1000, 100  # FLOPs и FLOP/s
fast_speed = 200e12  # 200 TFLOPS — ускоритель для обучения
print("1000 FLOPs при 100 FLOP/s:", duration(small_work / small_speed))
print("200 TFLOPS — это", scientific(fast_speed, 0), "операций в секунду")

# %% [markdown]
# Работа — свойство модели и данных, от карты она не зависит. Потому её и считают первой: операций поровну
# на любом железе, а время у каждого своё.
#
# ## Считаем до двадцати
#
# Трансформер почти всё время перемножает матрицы. Возьмём самое маленькое произведение, $2 \times 3$ на
# $3 \times 2$, и пересчитаем действия поштучно.


# %%
def multiply(a, b):
    """Произведение матриц тремя циклами; вместе с ним — число умножений и сложений."""
    result = [[0] * len(b[0]) for _ in a]
    multiplications = additions = 0
    for i, row in enumerate(a):
        for j in range(len(b[0])):
            result[i][j] = row[0] * b[0][j]  # первое слагаемое складывать не с чем
            multiplications += 1
            for k in range(1, len(b)):
                result[i][j] += row[k] * b[k][j]
                multiplications += 1
                additions += 1
    return result, multiplications, additions


result, multiplications, additions = multiply(
    [[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6]]
)
print(result)
print(
    f"{multiplications} умножений + {additions} сложений = {multiplications + additions} операций"
)

# %% [markdown]
# Теперь то же произведение через счётчик, встроенный в PyTorch.

# %%
by_convention = 2 * 2 * 3 * 2  # 2·m·k·n
try:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:
    torch, by_counter = None, None
    print(
        "PyTorch не установлен, счётчик пропущен; соглашение 2mkn даёт", by_convention
    )
else:
    with FlopCounterMode(display=False) as counter:
        torch.ones(2, 3) @ torch.ones(3, 2)
    by_counter = counter.get_total_flops()
    print("счётчик PyTorch:", by_counter, " соглашение 2mkn:", by_convention)

# %%
by_hand = multiplications + additions
assert (multiplications, additions, by_hand) == (12, 8, 20)
assert by_convention == 24
assert by_counter in (None, by_convention)

# %% tags=["remove-cell"]
prose(
    c_hand=str(by_hand),
    c_convention=str(by_convention),
)

# %% [markdown]
# Двадцать и двадцать четыре — и оба числа верны. Каждый элемент ответа — сумма $k$ произведений. Умножений в
# ней $k$, а сложений $k - 1$: первое слагаемое не с чем складывать. Поштучно выходит
# $mn(2k - 1)$, здесь {glue:text}`c_hand`. По соглашению каждому умножению приписывают сложение —
# «{term}`умножить и накопить`», две операции, — и произведение $m \times k$ на $k \times n$ стоит $2mkn$,
# здесь {glue:text}`c_convention`. **Дальше всюду действует соглашение.** Так считают статьи, счётчики и
# сами карты: их паспортная скорость тоже приписывает каждой такой паре две операции.
#
# Велика ли ошибка? Она зависит только от $k$ — длины скалярного произведения.

# %% tags=["hide-input"]
table(
    ["k", "поштучно, 2k − 1", "по соглашению, 2k", "соглашение больше на"],
    [
        (str(k), 2 * k - 1, 2 * k, percent(2 * k / (2 * k - 1) - 1, 2))
        for k in (3, 16, 128, 1024, 4096)
    ],
    "Операций на один элемент произведения",
)

# %% tags=["remove-cell"]
prose(c_small=percent(6 / 5 - 1, 0), c_large=percent(8192 / 8191 - 1, 2))

# %% [markdown]
# При $k = 3$ спор идёт о {glue:text}`c_small`. В слоях моделей $k$ — это ширина, сотни и тысячи, и от спора
# остаётся {glue:text}`c_large`. Прикидке с точностью в десятки процентов такие мелочи безразличны.
#
# ## Зачем считать заранее
#
# - **Деньги.** Счёт за облако приходит за часы карт, а часы выводятся из операций.
# - **Осуществимость.** Если на вашем железе обучение займёт сорок лет, лучше узнать об этом до запуска.
# - **Время.** По нему планируют: сколько карт, какая модель, сколько данных.
#
# ## Откуда шесть
#
# Возьмём слой с матрицей весов из $P$ элементов и пропустим через него $N$ токенов.
#
# - {term}`Прямой проход <прямой проход>`: каждый вес встречается с каждым токеном один раз — умножить и
#   накопить. Это $2PN$.
# - {term}`Обратный проход <обратный проход>`: нужны два градиента, по входу слоя и по весу. Каждый —
#   произведение того же размера, и вместе они стоят $4PN$, вдвое дороже прямого прохода.
#
# $$
# C = \underbrace{2PN}_{\text{прямой}} + \underbrace{4PN}_{\text{обратный}} = 6PN
# $$
#
# Это оценка для одной эпохи: каждый токен проходит через модель один раз. Подробный вывод есть у
# {cite:t}`bahdanau2022`. А мы спросим счётчик.

# %%
width, tokens = 64, 10
P_layer = width**2
predicted = {
    "прямой проход, 2PN": 2 * P_layer * tokens,
    "обратный проход, 4PN": 4 * P_layer * tokens,
}
counted = {}
if torch:
    weight = torch.randn(width, width, requires_grad=True)
    # Вход — выход предыдущего слоя, поэтому градиент нужен и по нему.
    x = torch.randn(tokens, width, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = x @ weight
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    totals = (forward.get_total_flops(), backward.get_total_flops())
    counted = dict(zip(predicted, totals, strict=True))
    assert counted == predicted

# %% tags=["hide-input"]
table(
    ["проход", "по формуле", "по счётчику"],
    [(name, work, counted.get(name, "—")) for name, work in predicted.items()],
    "Один слой 64 × 64, десять токенов",
)

# %% [markdown]
# ## Упражнение 1. Функция
#
# :::{admonition} Предскажите
# :class: hint
#
# Параметров вдвое больше, токенов вдвое меньше. Как изменится ответ функции, которую вы сейчас напишете?
# :::
#
# Напишите `compute_num_flops(param_count, num_tokens)`: сколько FLOPs займёт одна эпоха обучения модели из
# `param_count` параметров на `num_tokens` токенах. Функция должна **возвращать** число.


# %% tags=["exercise"]
def compute_num_flops(param_count, num_tokens):
    """FLOPs одной эпохи обучения: прямой и обратный проход."""
    return ...  # замените многоточие своей формулой


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько операций приходится на один параметр и один токен? Сложите прямой проход и обратный; обратный —
# это не одно произведение, а два.
#
# </details>
#
# Застряли? На странице сайта жмите «Подсказка», в Jupyter запускайте следующую ячейку: с каждым разом подсказка
# подробнее. Решение сложено под ней. Ваш ответ оно не заменит: ячейка срабатывает, только если имя ещё свободно.

# %% tags=["skip-execution"]
hint("7.2/flops")

# %% tags=["solution"]
if "compute_num_flops" not in globals():  # ваш ответ, если он есть, остаётся на месте

    def compute_num_flops(param_count, num_tokens):
        """FLOPs одной эпохи: 2PN прямого прохода и 4PN обратного."""
        return 6 * param_count * num_tokens


# %% tags=["check"]
check("7.2/flops", compute_num_flops)

# %% [markdown]
# <details class="nanolm-answer"><summary>Ответ на «предскажите»</summary>
#
# Никак не изменится: $P$ и $N$ входят в произведение поровну. Поэтому при данном бюджете операций можно
# выбирать — модель побольше или данных побольше. Какая пара лучше, решают уже законы масштабирования.
#
# </details>
#
# ## Упражнение 2. Четыре обучения
#
# Посчитайте работу четырёх обучений своей функцией или вручную. Хватит точности в 1 %.
#
# | обучение | параметров | токенов |
# |---|---|---|
# | BERT-base {cite}`devlin2018` | 110 млн | 3,3 млрд |
# | T5-large {cite}`raffel2019` | 770 млн | 1 трлн |
# | Gemma-1B, дообучение на наборе Africa Galore | 1 млрд | 30 тыс. |
# | PaLM {cite}`chowdhery2022` | 540 млрд | 780 млрд |

# %% tags=["exercise"]
scenario_flops = {
    "BERT-base": ...,
    "T5-large": ...,
    "Gemma-1B": ...,
    "PaLM": ...,
}

# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Тысяча — $10^3$, миллион — $10^6$, миллиард — $10^9$, триллион — $10^{12}$; в Python это `1e3`, `1e6`,
# `1e9`, `1e12`. Показатели складываются, остальное — таблица умножения. Или просто вызовите
# `compute_num_flops(110e6, 3.3e9)`.
#
# </details>

# %% tags=["solution"]
if "scenario_flops" not in globals():  # ваш ответ, если он есть, остаётся на месте
    scenario_flops = {
        "BERT-base": 6 * 110e6 * 3.3e9,
        "T5-large": 6 * 770e6 * 1e12,
        "Gemma-1B": 6 * 1e9 * 30e3,
        "PaLM": 6 * 540e9 * 780e9,
    }

# %% tags=["check"]
check("7.2/scenarios", scenario_flops)

# %% [markdown]
# Теперь та же таблица целиком. Последний столбец — сколько токенов пришлось на один параметр.


# %%
def training_flops(params, tokens):
    """Правило 6PN — то же, что вы написали в первом упражнении."""
    return 6 * params * tokens


work = {name: training_flops(*sizes) for name, sizes in SCENARIOS.items()}

# %% tags=["hide-input"]
table(
    ["обучение", "параметров P", "токенов N", "FLOPs", "токенов на параметр"],
    [
        (
            name,
            short(params),
            short(tokens),
            scientific(work[name]),
            short(tokens / params, 2),
        )
        for name, (params, tokens) in SCENARIOS.items()
    ],
    "Работа четырёх обучений, C = 6PN",
)

# %%
assert {name: f"{flops:.2e}" for name, flops in work.items()} == {
    "BERT-base": "2.18e+18",
    "T5-large": "4.62e+21",
    "Gemma-1B": "1.80e+14",
    "PaLM": "2.53e+24",
}

# %% tags=["remove-cell"]
YEAR = 365.25 * 86_400
prose(
    w_gemma=scientific(work["Gemma-1B"]),
    w_palm_bert=short(work["PaLM"] / work["BERT-base"]),
    w_palm_gemma=scientific(work["PaLM"] / work["Gemma-1B"], 1),
    w_t5_bert=number(work["T5-large"] / work["BERT-base"], 0),
    w_t5_params=number(770 / 110, 0),
    w_palm_years=number(work["PaLM"] / fast_speed / YEAR, 0),
    w_gemma_seconds=duration(work["Gemma-1B"] / fast_speed, 1),
)

# %% [markdown]
# ### Что вы заметили
#
# - PaLM дороже BERT-base в {glue:text}`w_palm_bert` раз. Ускоритель, который честно делает
#   $2 \cdot 10^{14}$ операций в секунду, считал бы PaLM в одиночку {glue:text}`w_palm_years` лет.
# - T5-large больше BERT-base всего в {glue:text}`w_t5_params` раз, а обучение дороже в
#   {glue:text}`w_t5_bert`: остальное — токены. **По одному размеру модели цену обучения не узнать.**
# - Дообучить готовую модель на тридцати тысячах токенов — {glue:text}`w_gemma` FLOPs, та же карта управится
#   за {glue:text}`w_gemma_seconds`. Учить с нуля и дообучать — разные миры: между
#   этой строкой и PaLM {glue:text}`w_palm_gemma` раз.
#
# ## Все масштабы на одном рисунке
#
# Такие разбросы видны только на {term}`логарифмической шкале <логарифмическая шкала>`: равный шаг по ней —
# равное *отношение*. Пять параллельных прямых на рисунке — обучение на данном числе токенов, от одного до
# триллиона. Шестая, более крутая, — совет {cite:t}`hoffmann2022`: при заданной работе лучше всего учится
# модель, у которой токенов примерно в двадцать раз больше, чем параметров. Работа вдоль неё растёт как
# $6 \cdot P \cdot 20P = 120P^2$. От нижнего левого угла до верхнего правого — {glue:text}`f_decades`
# порядков.

# %% tags=["hide-input"]
CHINCHILLA = 20  # токенов на параметр


def power_of_ten(power):
    """Степень десяти по-русски: 10⁹."""
    return scientific(10**power, 0).removeprefix("1·") if power else "1"


KNOWN = {**SCENARIOS, "Chinchilla": (70e9, 1.4e12)}
axis = [10.0**power for power in range(6, 13)]
curves = {
    f"N = {power_of_ten(power)}": [
        (params, training_flops(params, 10**power)) for params in axis
    ]
    for power in (0, 3, 6, 9, 12)
}
curves["20 токенов\nна параметр"] = [
    (params, training_flops(params, CHINCHILLA * params)) for params in axis
]
known_work = {
    name: (params, training_flops(params, tokens))
    for name, (params, tokens) in KNOWN.items()
}
lowest, highest = curves["N = 1"][0][1], curves["20 токенов\nна параметр"][-1][1]
lines(
    curves,
    name="flops-decades",
    title="Работа обучения: от одного токена до PaLM и дальше",
    x="параметров P",
    y="FLOPs за всё обучение",
    log="xy",
    points=known_work,
    alt="На двойной логарифмической шкале пять параллельных прямых для 1, 10³, 10⁶, 10⁹ и 10¹² токенов и вдвое "
    "более крутая прямая «20 токенов на параметр». Отмечены "
    + ", ".join(
        f"{name}: {scientific(flops, 1)}" for name, (_, flops) in known_work.items()
    )
    + ".",
    caption=f"От {scientific(lowest, 0)} до {scientific(highest, 1)} FLOPs. Точка Chinchilla лежит на своей прямой, "
    "BERT-base — почти на ней; PaLM недоучен, T5-large учили гораздо дольше, чем советует правило.",
)

# %%
assert highest / lowest > 10**18
assert known_work["Chinchilla"][1] == training_flops(70e9, CHINCHILLA * 70e9)

# %% tags=["remove-cell"]
prose(f_decades=str(len(str(round(highest / lowest))) - 1))

# %% [markdown]
# ## Упражнение 3. Два ползунка
#
# Первый ползунок — показатель степени у числа параметров, от $10^6$ до $10^{12}$. Второй — у числа токенов,
# от $10^9$ до $10^{14}$. Шаг — один порядок, начальное положение — 9 и 14.
#
# :::{admonition} Предскажите
# :class: hint
#
# Какой показатель будет у ответа при 9 и 14? Какой — если сдвинуть любой из ползунков на единицу?
# :::


# %% tags=["sliders"]
def show_flops(log_params=9, log_tokens=14):
    """Работа обучения для двух показателей степени."""
    params, tokens = 10**log_params, 10**log_tokens
    print(
        f"{power_of_ten(log_params)} параметров, {power_of_ten(log_tokens)} токенов"
    )
    print(f"→ {scientific(training_flops(params, tokens), 0)} FLOPs")


try:  # в Jupyter с пакетом ipywidgets — настоящие ползунки
    from ipywidgets import IntSlider, interact
except ImportError:
    # Иначе — начальное положение: меняйте числа в скобках и запускайте снова.
    show_flops(9, 14)
else:
    interact(
        show_flops,
        log_params=IntSlider(9, 6, 12, description="параметры"),
        log_tokens=IntSlider(14, 9, 14, description="токены"),
    )

# %% [markdown]
# ```{live} flops
# ```
#
# Все положения ползунков сразу — в таблице. Найдите в ней начальное и сделайте по шагу вверх и влево.

# %% tags=["hide-input"]
table(
    ["параметров", *(f"{power_of_ten(t)} токенов" for t in range(9, 15))],
    [
        (
            power_of_ten(p),
            *(scientific(training_flops(10**p, 10**t), 0) for t in range(9, 15)),
        )
        for p in range(6, 13)
    ],
    "FLOPs за одну эпоху при каждом положении ползунков",
)

# %%
assert training_flops(10**9, 10**14) == 6 * 10**23
assert all(
    training_flops(10**p, 10**t) == 6 * 10 ** (p + t)
    for p in range(6, 13)
    for t in range(9, 15)
)  # шаг любого ползунка меняет показатель ответа на единицу

# %% tags=["remove-cell"]
prose(
    s_start=scientific(training_flops(10**9, 10**14), 0),
    s_less=scientific(training_flops(10**8, 10**14), 0),
)

# %% [markdown]
# ### Что вы заметили
#
# В начале — {glue:text}`s_start`. Сдвиньте любой ползунок на единицу, и показатель ответа изменится на
# единицу: {glue:text}`s_less` выходит и при $10^8$ параметров, и при $10^{13}$ токенов. Шестёрка впереди не
# меняется никогда. Так выглядит линейная зависимость: показатели складываются, по диагонали таблицы стоит
# одно и то же число.
#
# ## От FLOPs — ко времени
#
# Делить надо на *достигнутую* скорость, а не на паспортную. Паспорт RTX 4080 обещает 97,5 TFLOPS для
# {term}`bfloat16` на плотных матрицах. При обучении из них получают 30–50 %: остальное время карта
# ждёт память, соседей или вас. Эта доля называется {term}`MFU`. Пример: 125 млн параметров, 2,5 млрд
# токенов, полезная скорость — $4 \cdot 10^{13}$ FLOP/s.

# %%
example = training_flops(125e6, 2.5e9)
useful_speed = 4e13
seconds = example / useful_speed
card = gpu("rtx-4080")
mfu = useful_speed / card.rate("bf16")
print("работа:", scientific(example, 3), "FLOPs")
print("время: ", scientific(seconds), "с, это", duration(seconds))
print("доля паспортной скорости:", percent(mfu, 0))

# %%
assert example == 1.875e18
assert round(seconds) == 46_875
assert round(100 * mfu) == 41

# %% tags=["remove-cell"]
prose(
    t_work=scientific(example, 3),
    t_seconds=scientific(seconds),
    t_hours=duration(seconds, 2),
    t_mfu=percent(mfu, 0),
    t_four_best=decimal(seconds / 4 / 3600, 1),
    t_four_worst=decimal(seconds / 3 / 3600, 1),
    t_low=duration(example / (0.30 * card.rate("bf16")), 2),
    t_high=duration(example / (0.50 * card.rate("bf16")), 2),
    t_default=duration(example / (0.45 * card.rate("bf16")), 2),
    t_peak=duration(example / card.rate("bf16"), 2),
)

# %% [markdown]
# {glue:text}`t_seconds` с — около {glue:text}`t_hours` на одной карте. Четыре карты справятся не вчетверо, а
# в три-четыре раза быстрее, за {glue:text}`t_four_best`–{glue:text}`t_four_worst` ч: часть времени уйдёт на
# обмен градиентами.
#
# :::{admonition} 41, 45, 30–50: одна величина
# :class: note
#
# $4 \cdot 10^{13}$ из 97,5 TFLOPS — это {glue:text}`t_mfu`. В [уроке девятой
# недели](week_09_buhgalteriya.py) вилка уже, 35–50 %, и по умолчанию берётся 45 %. Это не разные величины, а
# разная тщательность: 30 % даёт обычный код на одной карте, к 50 % приходят те, кто настраивал его неделями.
# Время от 30 до 50 % меняется от {glue:text}`t_low` до {glue:text}`t_high`; при 45 % выходит
# {glue:text}`t_default`. А деление на паспорт обещает {glue:text}`t_peak` — столько не получит никто.
# :::
#
# ### Дни, киловатт-часы, деньги
#
# Модель в 1 млрд параметров по правилу двадцати токенов: $20 \cdot 10^9$ токенов, $1{,}2 \cdot 10^{20}$
# FLOPs. Скорости и мощности карт `nanolm` берёт из [таблицы ускорителей](../docs/gpus.md). Цена часа — наше
# допущение, для порядка величины: подставьте свою.

# %%
# Долларов за час: пример, подставьте свои цены.
PRICES = {
    "t4": 0.3,
    "rtx-4080": 0.3,
    "rtx-4090": 0.4,
    "a100-80": 1.5,
    "h100-sxm": 2.5,
}
MFU = 0.45
project = training_flops(1e9, CHINCHILLA * 1e9)


def hours(card):
    """Часы на одной карте: работа / достигнутая скорость."""
    return project / (MFU * card.rate(card.best_16bit)) / 3600


def energy(card):
    """Киловатт-часы: паспортная мощность карты на время."""
    return card.watts / 1000 * hours(card)


# %% tags=["hide-input"]
def plan(card, price):
    """Строка сметы для одной карты."""
    return (
        card.title.removeprefix("NVIDIA ").removeprefix("GeForce "),
        card.best_16bit,
        prefixed(card.rate(card.best_16bit), "FLOP/s"),
        decimal(hours(card) / 24, 1),
        number(energy(card), 0),
        decimal(price, 1),
        number(hours(card) * price, 0),
    )


table(
    ["карта", "числа", "пик", "суток", "кВт·ч", "долларов за час", "долларов"],
    [plan(gpu(key), price) for key, price in PRICES.items()],
    f"1 млрд параметров, 20 млрд токенов, одна карта, MFU {percent(MFU, 0)}",
)

# %% tags=["remove-cell"]
turing, hopper = gpu("t4"), gpu("h100-sxm")
prose(
    p_work=scientific(project, 1),
    p_t4_kwh=number(energy(turing), 0),
    p_h100_kwh=number(energy(hopper), 0),
    p_watts=decimal(hopper.watts / turing.watts, 0),
    p_speed=decimal(hopper.rate("bf16") / turing.rate("fp16"), 0),
)

# %% [markdown]
# Работа у всех строк одна и та же, {glue:text}`p_work`; различаются скорость, мощность и цена. H100
# потребляет в {glue:text}`p_watts` раз больше, чем T4, но считает в {glue:text}`p_speed` раз быстрее, поэтому
# энергии уходит меньше: {glue:text}`p_h100_kwh` кВт·ч вместо {glue:text}`p_t4_kwh`. Карто-часы, а с
# ними и деньги, от числа карт почти не зависят: восемь карт закончат раньше почти в восемь раз, но и платить
# за каждый час придётся за восемь.
#
# Оговорки к смете. Энергия посчитана по паспортной мощности карты; процессор, охлаждение и сеть не вошли. T4
# не умеет bfloat16 на тензорных ядрах и взята с fp16. И ещё: мы не спросили, поместится ли эта модель в
# память карты, — об этом две следующие лабораторные.
#
# ## Где 6PN ошибается
#
# Формула берёт все параметры и ничего, кроме параметров. Модель устроена чуть сложнее.
#
# - **Эмбеддинг** — таблица: строку из неё выбирают, а не умножают. Параметры есть, операций нет.
# - **Выходная голова** — настоящее произведение. Если она делит матрицу с эмбеддингом, параметры стоят один
#   раз, а операции никуда не делись.
# - **Оценки внимания** — произведения активаций на активации. Весов в них нет, и $6PN$ их не видит. Они тем
#   дороже, чем длиннее контекст.
#
# Сравним прикидку с точным счётом `nanolm`.

# %% tags=["hide-input"]
MODELS = {
    "GPT-2 small, 1024 токена": ("gpt2", 1024),
    "Llama-3-8B, 1024 токена": ("llama-3-8b", 1024),
    "Llama-3-8B, 8192 токена": ("llama-3-8b", 8192),
    "Llama-3-70B, 8192 токена": ("llama-3-70b", 8192),
}


def compare(key, context):
    """6P, точный счёт и его части в GFLOPs на токен обучения."""
    spec = preset(key)
    rule = 6 * parameter_breakdown(spec).total
    exact = flops_per_token(spec, context)
    parts = (
        rule,
        exact["attention"] + exact["ffn"],
        exact["lm_head"],
        exact["scores"],
        exact.total,
    )
    return (*(flops / 1e9 for flops in parts), percent(rule / exact.total - 1, 0))


comparison = {name: compare(*model) for name, model in MODELS.items()}
table(
    [
        "модель",
        "6P",
        "матрицы слоёв",
        "голова",
        "оценки внимания",
        "всего",
        "6P расходится на",
    ],
    [(name, *row) for name, row in comparison.items()],
    "GFLOPs на токен обучения; внимание по полному квадрату",
)

# %%
llama = preset("llama-3-8b")
llama_params = parameter_breakdown(llama)
llama_flops = flops_per_token(llama, 8192)
assert llama_params.total == 8_030_261_248
assert llama_flops["lm_head"] == 6 * llama.V * llama.D  # голова — произведение D × V
matrices = llama_params.non_embedding - llama_params["norms"]
assert llama_flops["attention"] + llama_flops["ffn"] == 6 * matrices

# %% tags=["remove-cell"]
causal = flops_per_token(llama, 8192, attention="causal").total
rule = 6 * llama_params.total


def gap(exact):
    """На какую долю правило расходится с точным счётом, без знака."""
    return percent(abs(rule / exact - 1), 0)


prose(
    e_gpt2=comparison["GPT-2 small, 1024 токена"][-1].lstrip("−"),
    e_8b=gap(llama_flops.total),
    e_8b_short=gap(flops_per_token(llama, 1024).total),
    e_8b_causal=gap(causal),
    e_70b=comparison["Llama-3-70B, 8192 токена"][-1].lstrip("−"),
    e_8b_embedding=decimal(6 * llama_params["embedding"] / 1e9),
    e_8b_scores=decimal(llama_flops["scores"] / 1e9),
)

# %% [markdown]
# - **Две ошибки разного знака.** У Llama-3-8B $6P$ приписывает {glue:text}`e_8b_embedding` GFLOPs
#   эмбеддингу, где умножений нет, и не видит оценок внимания. При 1024 токенах побеждает первая, и правило
#   *завышает* на {glue:text}`e_8b_short`. При 8192 оценки стоят уже {glue:text}`e_8b_scores` GFLOPs, и оно
#   *занижает* на {glue:text}`e_8b`.
# - **Соглашение меняет ответ.** Если считать только пары, которые оставляет причинная маска, при 8192
#   токенах вместо {glue:text}`e_8b` выходит {glue:text}`e_8b_causal`.
# - **Размер.** При том же контексте у Llama-3-70B расхождение меньше, {glue:text}`e_70b`: матрицы растут
#   быстрее, чем внимание.
# - **Связанная голова.** У GPT-2 одна матрица и хранится, и умножается, так что в $6P$ она учтена верно.
#   Почти все {glue:text}`e_gpt2` — внимание.
#
# Для сметы этого хватает: неопределённость MFU больше. Когда нужна точность, берут счёт по строкам; его
# вывод — в [уроке девятой недели](week_09_buhgalteriya.py).
#
# :::{admonition} Запомните
# :class: tip
#
# **6 операций на параметр и токен: $C = 6PN$.** Две — прямой проход, четыре — обратный. Время — $C$,
# делённое на 40 % паспортной скорости. Для 125 млн параметров и 2,5 млрд токенов это {glue:text}`t_work`
# FLOPs и около {glue:text}`t_hours` на RTX 4080.
# :::
#
# ## Вернёмся к догадкам

# %% tags=["hide-input"]
table(
    ["вопрос", "ответ"],
    [
        (
            "операций в произведении 2×3 на 3×2",
            f"поштучно {by_hand}, по соглашению {by_convention}",
        ),
        ("PaLM дороже BERT-base", f"в {short(work['PaLM'] / work['BERT-base'])} раз"),
        (
            "125 млн параметров, 2,5 млрд токенов",
            f"около {duration(seconds, 2)} на RTX 4080",
        ),
    ],
)

# %% [markdown]
# ## Итоги
#
# Работа обучения не зависит от карты, и считается она одним произведением. Дальше две поправки: на железо —
# через достигнутую долю скорости, на устройство модели — через голову и внимание. Первая важнее.
#
# ## Словарь
#
# {term}`FLOPs` · {term}`FLOP/s` · {term}`умножить и накопить` · {term}`прямой проход` ·
# {term}`обратный проход` · {term}`оценка «на салфетке»` · {term}`экспоненциальная запись` ·
# {term}`логарифмическая шкала` · {term}`MFU` · {term}`bfloat16`
#
# ## Что читать
#
# - {cite:t}`bahdanau2022` — вывод шестёрки по операциям.
# - {cite:t}`hoffmann2022` — сколько токенов давать модели при заданной работе.
# - {cite:t}`devlin2018`, {cite:t}`raffel2019`, {cite:t}`chowdhery2022` — откуда числа таблицы; в последней
#   определён и MFU.
#
# ## Дальше
#
# Операции посчитаны, но до первой из них модель надо загрузить. В
# [лабораторной 7.3](lab_7_3_stena.py) она не загрузится, а в [7.4](lab_7_4_pamyat.py) мы посчитаем почему.
#
# ---
#
# *По задачам и числам курса AI Research Foundations, модуль 7 «Accelerate Your Model», лабораторная 7.2
# (Google DeepMind и University College London; тексты CC BY 4.0, код Apache 2.0; репозиторий
# google-deepmind/ai-foundations). Читали мы её в русском переводе; пример с RTX 4080 — замечание
# переводчика, не DeepMind. Это самостоятельная работа: текст, код и рисунки написаны заново. Подробнее — на
# странице «[Источники и лицензии](../docs/sources.md)».*

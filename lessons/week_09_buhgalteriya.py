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
# # Неделя 9. Бухгалтерия: параметры, FLOPs, память
#
# Сколько параметров у модели, сколько операций стоит её обучение и поместится ли она на карту — всё это
# можно узнать до первого запуска, с карандашом. Нужны семь чисел из `config.json`, умножение и привычка
# проверять себя. На этой странице мы проведём по счетам настоящую модель, Llama-3-8B, и каждое число
# доведём до строки, из которой оно взялось.
#
# :::{admonition} К концу вы сможете
# :class: tip
#
# - вывести $P \approx 2VD + 12LD^2$ и объяснить, почему у Llama-3-8B правило даёт одно число, а настоящая
#   модель — другое;
# - за пять минут оценить время и цену обучения;
# - посчитать {term}`кеш KV` и найти пакет, при котором он весит столько же, сколько веса;
# - разделить полное и активное число параметров у смеси экспертов;
# - написать свой калькулятор памяти и подтвердить его прогноз измерением;
# - за три минуты ответить на вопрос собеседования: поместится ли полное дообучение модели 7B на одну карту
#   с 80 ГБ.
# :::
#
# - **Время:** основная часть — около 11 часов, всё вместе — около 21 часа; раскладка ниже.
# - **Устройство:** любой процессор; видеокарта не нужна. Разделу с измерением нужен PyTorch, без него там
#   останется один прогноз.
# - **Нужно знать:** современный блок трансформера — {term}`GQA`, {term}`SwiGLU`, {term}`RoPE` — и умножение
#   матриц.
# - **Обозначения:** $V$ словарь, $D$ ширина, $L$ слои, $N$ головы запроса, $K$ головы ключа и значения, $H$
#   размер головы, $F$ ширина полносвязного блока, $S$ длина последовательности, $B$ пакет, $E$ эксперты,
#   $k$ экспертов на токен. Подробно — на [странице обозначений](../docs/notation.md).
#
# **Задания:** девять упражнений с проверкой, которая называет ошибку, а в конце — свой калькулятор. Часы — это
# не чтение страницы, а работа с ней.
#
# | что делать | основная часть, ч | углублённая часть, ч |
# |---|---|---|
# | читать с карандашом, предсказывать числа до запуска | 3 | 2 |
# | повторить выводы формул по памяти | 2 | 2 |
# | решить упражнения, написать свой калькулятор, сверить его со счётом и измерением | 4 | 3 |
# | самопроверка и ответ на вопрос собеседования | 2 | 1 |
# | статьи из списка в конце | — | 2 |
# | **всего** | **11** | **10** |

# %% [markdown]
# :::{admonition} Осторожно, буквы
# :class: warning
#
# В статьях о законах масштабирования $N$ — число параметров, $D$ — число токенов, и работа обучения равна
# $6ND$ {cite}`kaplan2020`. В лабораторных 7.2 и 7.4 та же формула записана как $6PN$. Здесь $N$ и $D$
# заняты головами и шириной. Поэтому на этой странице число параметров — $P$, число токенов обучения — $T$,
# а правило по-прежнему зовётся «правилом 6N»: так его называют все.
# :::
#
# ## Сначала угадайте
#
# Запишите ответы на бумаге, прежде чем читать дальше. Порядок величины важнее цифр.
#
# 1. У Llama-3-8B словарь в 128 256 токенов, ширина 4096 и 32 слоя. Сколько параметров даст прикидка по этим
#    трём числам? Больше или меньше настоящего числа она окажется?
# 2. Модель в 7 млрд параметров обучают обычным AdamW в смешанной точности. Сколько памяти займут веса,
#    градиенты и {term}`состояние оптимизатора` — ещё без единой активации?
# 3. Сколько диалогов по 8192 токена нужно вести одновременно, чтобы кеш Llama-3-8B занял столько же памяти,
#    сколько её веса: десяток, сотню, тысячу?
#
# К ответам мы вернёмся в конце. А теперь откроем счета.

# %%
from nanolm import budget
from nanolm.budget import NOTATION, Spec
from nanolm.exercises import check, hint
from nanolm.figures import bars, lines, prose, scatter, stacked_bars, table
from nanolm.hardware import gpu
from nanolm.units import (
    GB,
    GIB,
    NBSP,
    counted,
    decimal,
    gb,
    gib,
    number,
    percent,
    plural,
    scientific,
    short,
)
from nanolm.zoo import preset

llama = preset("llama-3-8b")
V, D, L, N, K, H, F, S = (getattr(llama, letter) for letter in "VDLNKHFS")
table(
    ["буква", "что значит", "Llama-3-8B"],
    [(letter, NOTATION[letter], getattr(llama, letter)) for letter in "VDLNKHFS"],
)

# %% [markdown]
# Это вся геометрия: из неё следует каждое число страницы. `Spec` только хранит размеры и проверяет их.
# Считают функции из `nanolm.budget`, и все они читают одну и ту же таблицу операций, поэтому разойтись
# между собой не могут. `check` проверяет упражнения, `hint` подсказывает.
#
# ## Шаг 1. Параметры
#
# ### Вывод правила
#
# Параметры живут в матрицах. Пройдём модель сверху вниз и выпишем их размеры.
#
# | где | что хранится |
# |---|---|
# | {term}`эмбеддинг` | матрица $V \times D$ |
# | внимание, запрос | матрица $D \times NH$ |
# | внимание, ключ и значение | две матрицы $D \times KH$ |
# | внимание, выход | матрица $NH \times D$ |
# | полносвязный блок {term}`SwiGLU` {cite}`shazeer2020` | ворота и расширение $D \times F$, сжатие $F \times D$ |
# | нормы | по вектору длины $D$: две на слой и одна в конце |
# | выходная голова | матрица $D \times V$, если не связана с эмбеддингом |
#
# Все размеры названы в `config.json`, и только $F$ выглядит взятым с потолка. Это не так. До SwiGLU блок
# состоял из двух матриц, $D \times 4D$ и $4D \times D$. Когда понадобилась третья, ширину уменьшили, чтобы
# параметров осталось столько же.
#
# ### Упражнение 1. Ширина SwiGLU
#
# Напишите `swiglu_width(D)`: ширину $F$, при которой три матрицы SwiGLU весят столько же, сколько две матрицы
# прежнего блока. Ответ — целое число, ближайшее к точному.


# %% tags=["exercise"]
def swiglu_width(D):
    """Ширина SwiGLU при том же числе параметров, что у двух матриц D × 4D."""
    return ...  # замените многоточие своей формулой


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько параметров было в двух матрицах? Столько же должно остаться в трёх, а неизвестна одна ширина.
#
# </details>
#
# Застряли? На странице сайта жмите «Подсказка», в Jupyter запускайте следующую ячейку: с каждым разом подсказка
# подробнее. В остальных упражнениях `hint` зовут так же. Решение сложено под подсказкой и вашего ответа не
# заменит: ячейка срабатывает, только если имя ещё свободно.

# %% tags=["skip-execution"]
hint("9/swiglu-width")

# %% tags=["solution"]
if "swiglu_width" not in globals():  # ваш ответ остаётся на месте

    def swiglu_width(D):
        """Ширина SwiGLU при том же числе параметров, что у двух матриц D × 4D."""
        return round(8 * D / 3)


# %% tags=["check"]
check("9/swiglu-width", swiglu_width)

# %% [markdown]
# ### Правило
#
# Приравняем параметры трёх матриц SwiGLU и двух матриц простого блока:
#
# $$
# 3DF = 8D^2 \quad\Longrightarrow\quad F = \tfrac{8}{3}D .
# $$
#
# Это первое упрощение, верное для классического блока. Второе: головы ключа и значения не урезаны, то есть
# $KH = NH = D$. Тогда внимание — четыре матрицы $D \times D$, и слой стоит $4D^2 + 8D^2 = 12D^2$. Нормы линейны
# по $D$ и рядом с квадратом не видны. Остаётся
#
# $$
# P \approx \underbrace{2VD}_{\text{эмбеддинг и голова}} + \underbrace{12LD^2}_{\text{слои}} .
# $$
#
# ### Упражнение 2. Параметры до единицы
#
# Правило — прикидка. Точный счёт держится на той же таблице матриц, но без упрощений: с $K$ голов вместо $N$ у
# ключа и значения, с настоящим $F$ и с нормами. Напишите
# `count_params(V, D, L, N, K, H, F, tie_embeddings)` — число параметров модели, до единицы. Если
# `tie_embeddings` истинно, голова делит матрицу с эмбеддингом.


# %% tags=["exercise"]
def count_params(V, D, L, N, K, H, F, tie_embeddings):
    """Параметры декодера с GQA, SwiGLU и RMSNorm, без смещений."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Идите по таблице матриц сверху вниз. Что из неё повторяется в каждом слое, а что есть в модели один раз?
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/params")`.
#
# </details>

# %% tags=["solution"]
if "count_params" not in globals():  # ваш ответ остаётся на месте

    def count_params(V, D, L, N, K, H, F, tie_embeddings):
        """Параметры декодера с GQA, SwiGLU и RMSNorm, без смещений."""
        attention = 2 * D * N * H + 2 * D * K * H
        ffn = 3 * D * F
        norms = 2 * D
        tables = 1 if tie_embeddings else 2
        return tables * V * D + L * (attention + ffn + norms) + D


# %% tags=["check"]
check("9/params", count_params)

# %% [markdown]
# ### Правило против модели
#
# :::{admonition} Предскажите
# :class: hint
#
# Подставьте $V = 128\,256$, $D = 4096$, $L = 32$ без калькулятора, округляя до двух цифр. Какое из двух
# слагаемых больше и во сколько раз?
# :::


# %%
def rule(V, D, L):
    """Прикидка: две матрицы словаря и 12D² на слой."""
    return 2 * V * D + 12 * L * D**2


exact = budget.parameter_breakdown(llama)
print("правило:", number(rule(V, D, L)))
print("модель: ", number(exact.total))
assert exact.total == 8_030_261_248

# %% tags=["remove-cell"]
prose(
    p_rule=short(rule(V, D, L)),
    p_exact=short(exact.total),
    p_rule_vocab=short(2 * V * D),
    p_rule_layers=short(12 * L * D**2),
    p_miss=short(exact.total - rule(V, D, L)),
    p_miss_share=percent(1 - rule(V, D, L) / exact.total),
)

# %% [markdown]
# Правило даёт {glue:text}`p_rule_vocab` на словарь и {glue:text}`p_rule_layers` на слои, вместе
# {glue:text}`p_rule`. У модели — {glue:text}`p_exact`. Недостача в {glue:text}`p_miss`, или
# {glue:text}`p_miss_share`: для прикидки «на салфетке» прекрасно. Но название «8B» — не округление вверх, а
# другая геометрия, и разобраться стоит.
#
# ### Почему правило и модель расходятся

# %%
exact

# %% tags=["hide-input"]
parts = {
    "эмбеддинг": (V * D, exact["embedding"]),
    "внимание": (4 * L * D**2, exact["attention"]),
    "полносвязные блоки": (8 * L * D**2, exact["ffn"]),
    "выходная голова": (V * D, exact["lm_head"]),
    "нормы": (0, exact["norms"]),
}
comparison = [
    (name, by_rule, real, number(real - by_rule))
    for name, (by_rule, real) in parts.items()
]
totals = tuple(sum(column) for column in zip(*parts.values(), strict=True))
table(
    ["компонент", "правило", "Llama-3-8B", "разница"],
    [*comparison, ("всего", *totals, number(totals[1] - totals[0]))],
    "Параметры по компонентам: правило и модель",
)

# %% tags=["hide-input"]
visible = [name for name in parts if name != "нормы"]
stacked_bars(
    {
        "правило": {name: parts[name][0] / 1e9 for name in visible},
        "Llama-3-8B": {name: parts[name][1] / 1e9 for name in visible},
    },
    name="parameters-rule-and-model",
    title="Одна сумма из разных слагаемых",
    unit="млрд параметров",
    label=lambda value: decimal(value),
    alt=(
        f"Два составных столбца. Правило: внимание {short(parts['внимание'][0])}, полносвязные блоки "
        f"{short(parts['полносвязные блоки'][0])}, всего {short(totals[0])}. Llama-3-8B: внимание "
        f"{short(parts['внимание'][1])}, полносвязные блоки {short(parts['полносвязные блоки'][1])}, "
        f"всего {short(totals[1])}. Эмбеддинг и голова одинаковы."
    ),
    caption="Внимание у модели тоньше, полносвязный блок — толще. Ошибки правила разного знака, "
    "и в сумме промах меньше каждой из них.",
)

# %%
# Без K и F получится та модель, о которой говорит правило: K = N, F ≈ 8D/3.
classic = Spec(V=V, D=D, L=L, N=N)
walk = {
    "классический блок": classic,
    "+ GQA, K = 8": classic.replace(K=K),
    "+ F = 14336": llama,
}
rows = []
for name, spec in walk.items():
    account = budget.parameter_breakdown(spec)
    rows.append((name, account["attention"], account["ffn"], account.total))
table(
    ["модель", "внимание", "полносвязные блоки", "всего"],
    rows,
    "От правила к модели — два шага",
)

# %% tags=["remove-cell"]
prose(
    p_attn_rule=short(4 * L * D**2),
    p_attn=short(exact["attention"]),
    p_ffn_rule=short(8 * L * D**2),
    p_ffn=short(exact["ffn"]),
    p_f_over_d=decimal(F / D, 1),
    p_norms=short(exact["norms"]),
    p_norm_share=percent(exact["norms"] / exact.total, 4),
)

# %% [markdown]
# Два шага, две причины.
#
# - **GQA урезает внимание.** У Llama-3-8B восемь голов ключа и значения на тридцать две головы запроса
#   {cite}`ainslie2023`. Матрицы ключа и значения вчетверо у́же, и внимание весит {glue:text}`p_attn` вместо
#   {glue:text}`p_attn_rule`.
# - **Полносвязный блок шире.** $F = 14336$ — это {glue:text}`p_f_over_d` ширины модели, а не $8/3$. Вместо
#   {glue:text}`p_ffn_rule` выходит {glue:text}`p_ffn`: сэкономленное на внимании отдали сюда, и с избытком.
#
# Нормы, которые мы выбросили, — это {glue:text}`p_norms` параметров, {glue:text}`p_norm_share` модели.
# Выбросили не зря.
#
# Каждую строку счёта можно спросить, откуда она взялась.

# %%
print(exact.explain("attention"))

# %% [markdown]
# ### Когда модель — это в основном словарь
#
# Эмбеддинг растёт как $VD$, слои — как $LD^2$. У маленькой модели побеждает словарь. Граница для двух
# отдельных матриц:
#
# $$
# 2VD > 12LD^2 \quad\Longleftrightarrow\quad V > 6LD .
# $$
#
# Если голова связана с эмбеддингом, матрица словаря одна, и граница вдвое дальше: $V > 12LD$.
#
# :::{admonition} Предскажите
# :class: hint
#
# У GPT-2 small 12 слоёв, ширина 768, словарь 50 257, голова связана с эмбеддингом. Больше половины её
# параметров приходится на словарь или меньше?
# :::

# %% tags=["hide-input"]
gpt2 = preset("gpt2")
toy = Spec(V=50257, D=256, L=4, N=4, S=1024, tie_embeddings=True)
zoo = {
    "учебная, 4 слоя": toy,
    "GPT-2 small": gpt2,
    "Qwen2.5-0.5B": preset("qwen2.5-0.5b"),
    "Llama-3.2-1B": preset("llama-3.2-1b"),
    "Mistral-7B": preset("mistral-7b-v0.1"),
    "Qwen2.5-7B": preset("qwen2.5-7b"),
    "Llama-3-8B": llama,
    "Llama-3-70B": preset("llama-3-70b"),
}


def vocabulary_share(spec):
    """Доля матриц словаря — эмбеддинга и отдельной головы — в параметрах."""
    account = budget.parameter_breakdown(spec)
    return (account["embedding"] + account["lm_head"]) / account.total


shares = {name: vocabulary_share(spec) for name, spec in zoo.items()}
bars(
    {name: 100 * share for name, share in shares.items()},
    name="vocabulary-share",
    title="Доля словаря в параметрах",
    unit="% параметров: эмбеддинг и отдельная голова",
    label=lambda value: percent(value / 100, 0),
    threshold=(50, "половина модели"),
    alt="Столбцы: "
    + ", ".join(f"{name} — {percent(share, 0)}" for name, share in shares.items())
    + ".",
    caption="Модели стоят по возрастанию числа параметров. Дело не только в размере: словарь Llama-3-8B больше "
    f"словаря Mistral-7B в {number(V / zoo['Mistral-7B'].V, 0)} раза, и доля выросла вслед за ним.",
)

# %% tags=["hide-input"]
table(
    ["модель", "параметров", "V", "граница", "V / граница", "доля словаря"],
    [
        (
            name,
            short(budget.parameter_breakdown(spec).total),
            spec.V,
            f"{number((12 if spec.tie_embeddings else 6) * spec.L * spec.D)}",
            spec.V / ((12 if spec.tie_embeddings else 6) * spec.L * spec.D),
            percent(shares[name]),
        )
        for name, spec in zoo.items()
    ],
    "Граница: 12LD у моделей со связанной головой, 6LD у остальных",
)

# %%
assert gpt2.V < 6 * gpt2.L * gpt2.D  # до границы не дошла даже с двумя матрицами
assert budget.parameter_breakdown(gpt2).total == 124_439_808
assert round(100 * shares["GPT-2 small"]) == 31

# %% tags=["remove-cell"]
prose(
    gpt2_border=number(6 * gpt2.L * gpt2.D),
    gpt2_share=percent(shares["GPT-2 small"], 0),
    toy_share=percent(shares["учебная, 4 слоя"], 0),
    llama70_share=percent(shares["Llama-3-70B"], 0),
)

# %% [markdown]
# У GPT-2 small $6LD$ равно {glue:text}`gpt2_border` — больше словаря, и голова к тому же связана. Поэтому
# словарь занимает не половину, а {glue:text}`gpt2_share`. У учебной модели в четыре слоя с тем же словарём
# — уже {glue:text}`toy_share`: сравнивать такие модели «по числу параметров» бессмысленно, считать надо
# слои. У Llama-3-70B от словаря остаётся {glue:text}`llama70_share`.
#
# Отсюда оговорка, которая понадобится на следующем шаге: **в $N$ из правила 6N эмбеддинг не входит**. В
# счёте это `exact.non_embedding`.
#
# ### Ошибки, по которым узнают новичка

# %% tags=["hide-input"]
small = preset("llama-3.2-1b")
shared = budget.parameter_breakdown(small)
wide = llama.replace(F=4 * D)
mistakes = [
    ("F = 4D у SwiGLU", budget.parameter_breakdown(wide).total, exact.total),
    (
        "связанная голова посчитана дважды",
        shared.total + small.V * small.D,
        shared.total,
    ),
    (
        "ключи и значения по N головам, а не по K",
        budget.parameter_breakdown(llama.replace(K=N)).total,
        exact.total,
    ),
]


def times(ratio):
    """Промах: «× 4,00» — вышло больше, «÷ 8,00» — меньше."""
    return f"× {decimal(ratio)}" if ratio >= 1 else f"÷ {decimal(1 / ratio)}"


def mistake_table(rows, caption, show=number):
    """Ошибка, что вышло, что верно и во сколько раз промахнулись."""
    return table(
        ["ошибка", "вышло", "верно", "промах"],
        [
            (name, show(wrong), show(right), times(wrong / right))
            for name, wrong, right in rows
        ],
        caption,
    )


mistake_table(
    mistakes, "Ошибки в параметрах: Llama-3-8B, вторая строка — Llama-3.2-1B"
)

# %% [markdown]
# - **$F = 4D$ у SwiGLU.** Четвёрка — от блока из двух матриц. Трём матрицам соответствует $8D/3$, а у
#   настоящих моделей $F$ просто читают из `config.json`.
# - **Связанная голова посчитана дважды.** Если `tie_word_embeddings` истинно, отдельной матрицы головы нет.
#   Умножений она всё равно требует: параметры и FLOPs здесь расходятся.
# - **$N$ вместо $K$.** Параметры эта ошибка портит слегка, а кеш — вчетверо: мы встретим её снова.
#
# :::{admonition} Запомните
# :class: tip
#
# $P \approx 2VD + 12LD^2$. Для Llama-3-8B правило даёт {glue:text}`p_rule`, модель — {glue:text}`p_exact`:
# GQA убавляет внимание, а широкое $F$ — {glue:text}`p_f_over_d` от $D$ — прибавляет полносвязный блок.
# :::
#
# <details class="nanolm-answer"><summary>Проверьте себя: почему слой стоит 12D² при любом из двух блоков?</summary>
#
# Простой блок: $D \times 4D$ и $4D \times D$, вместе $8D^2$. SwiGLU: три матрицы $D \times F$, и $F = 8D/3$
# выбрано именно так, чтобы $3DF = 8D^2$. Внимание в обоих случаях даёт $4D^2$. Совпадение не случайно:
# авторы SwiGLU сравнивали блоки при равном числе параметров.
#
# </details>

# %% [markdown]
# ## Шаг 2. FLOPs
#
# ### Операция и скорость
#
# {term}`FLOPs` — количество: сколько операций с плавающей точкой нужно сделать. {term}`FLOP/s` — скорость:
# сколько их делает устройство за секунду. Путаница между ними — та же, что между километрами и километрами
# в час. Делим первое на второе — получаем время.
#
# Произведение матриц $(b \times n)\,(n \times m)$ — это $bm$ скалярных произведений длины $n$, в каждом $n$
# умножений и $n - 1$ сложение. По соглашению считают $2bnm$: «умножить и накопить» — две операции.
#
# ### Откуда 2, 4 и 6
#
# Пусть слой делает $y = xW$, где $x$ — один токен. {term}`Прямой проход <прямой проход>` тратит $2$
# операции на каждый элемент $W$. {term}`Обратный проход <обратный проход>` получает $\partial y$ и должен
# ответить на два вопроса:
#
# $$
# \partial x = \partial y\, W^\top, \qquad \partial W = x^\top \partial y .
# $$
#
# Градиент по входу нужен предыдущему слою, градиент по весу — оптимизатору. Каждый — произведение того же
# размера, ещё $2 + 2 = 4$ операции на элемент. Вместе шесть:
#
# $$
# \text{FLOPs на токен} \approx 6P, \qquad C = 6PT .
# $$
#
# :::{admonition} Предскажите
# :class: hint
#
# Модель в $10^9$ параметров, $2 \cdot 10^{10}$ токенов. Сколько FLOPs? Сложите показатели в уме.
# :::


# %%
def training_flops(params, tokens):
    """Правило 6N: два действия на вес в прямом проходе и четыре в обратном."""
    return 6 * params * tokens


print(scientific(training_flops(1e9, 20e9), 1))
assert training_flops(10**9, 20 * 10**9) == 12 * 10**19

# %% tags=["hide-input"]
tokens_axis = [10.0**power for power in range(9, 15)]
sizes = {
    "100 млн": 1e8,
    "1 млрд": 1e9,
    "10 млрд": 1e10,
    "100 млрд": 1e11,
    "1 трлн": 1e12,
}
runs = {
    "BERT-base": (3.3e9, training_flops(110e6, 3.3e9), "se"),
    "T5-large": (1e12, training_flops(770e6, 1e12), "se"),
    "PaLM": (780e9, training_flops(540e9, 780e9)),
    "Chinchilla": (1.4e12, training_flops(70e9, 1.4e12), "se"),
}
lines(
    {
        f"P = {label}": [
            (tokens, training_flops(params, tokens)) for tokens in tokens_axis
        ]
        for label, params in sizes.items()
    },
    name="training-flops",
    title="Работа обучения: C = 6PT",
    x="токенов обучения T",
    y="FLOPs за всё обучение",
    log="xy",
    points=runs,
    alt="На двойной логарифмической шкале пять параллельных прямых: работа растёт в 10 раз с каждым десятикратным "
    "ростом параметров или токенов. Отмечены "
    + ", ".join(
        f"{name}: {scientific(work, 1)}" for name, (_, work, *_) in runs.items()
    )
    + ".",
    caption="Прямые параллельны: и параметры, и токены входят в первой степени. Обе шкалы логарифмические.",
)

# %% tags=["remove-cell"]
prose(
    run_bert=scientific(runs["BERT-base"][1]),
    run_palm=scientific(runs["PaLM"][1]),
    run_ratio=short(runs["PaLM"][1] / runs["BERT-base"][1], 2),
    chinchilla_ratio=number(1.4e12 / 70e9),
)

# %% [markdown]
# От BERT-base {cite}`devlin2018` ({glue:text}`run_bert`) до PaLM {cite}`chowdhery2022`
# ({glue:text}`run_palm`) — в {glue:text}`run_ratio` раз больше. Между ними T5-large {cite}`raffel2019` и
# Chinchilla: у последней на параметр приходится {glue:text}`chinchilla_ratio` токенов, столько авторы
# советуют при заданном бюджете вычислений {cite}`hoffmann2022`. Само правило с разбором по операциям есть у
# {cite:t}`bahdanau2022`.
#
# ### Чего в 6N нет
#
# Правило приписывает по шесть операций каждому параметру, но не каждый параметр во что-то умножается.
# Эмбеддинг — таблица, из неё берут строку. Выходная голова, наоборот, умножается по-настоящему, но её принято
# считать отдельно: она зависит от словаря, а не от глубины модели. Значит, $N$ в правиле 6N — не всё число
# параметров.
#
# ### Упражнение 3. Что такое N
#
# Напишите `flops_rule(total_params, V, D, tie_embeddings)`: FLOPs обучения на один токен по правилу 6N.
# `total_params` — все параметры модели; `tie_embeddings` говорит, делит ли голова матрицу с эмбеддингом.


# %% tags=["exercise"]
def flops_rule(total_params, V, D, tie_embeddings):
    """FLOPs обучения на токен по правилу 6N."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько у модели таблиц словаря и сколько параметров в каждой? В $N$ входит всё остальное.
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/flops-rule")`.
#
# </details>

# %% tags=["solution"]
if "flops_rule" not in globals():  # ваш ответ остаётся на месте

    def flops_rule(total_params, V, D, tie_embeddings):
        """FLOPs обучения на токен по правилу 6N."""
        tables = 1 if tie_embeddings else 2
        return 6 * (total_params - tables * V * D)


# %% tags=["check"]
check("9/flops-rule", flops_rule)

# %% [markdown]
# ### Три строки сверх правила
#
# Теперь полный счёт операций Llama-3-8B.

# %%
# Обучение, контекст 8192, внимание по полному квадрату.
flops = budget.flops_per_token(llama)
flops

# %% tags=["remove-cell"]
prose(
    f_head=short(flops["lm_head"]),
    p_non_embedding=short(exact.non_embedding),
)

# %% [markdown]
# Три строки требуют объяснений.
#
# **Эмбеддинг — ноль.** $N$ правила — это {glue:text}`p_non_embedding`, а не {glue:text}`p_exact`.
#
# **Выходная голова — отдельная строка.** Матрица $D \times V$ умножается по-настоящему: $6VD$ на токен,
# {glue:text}`f_head`. Если голова связана с эмбеддингом, параметров у неё нет, а умножения остаются.
#
# **Оценки внимания зависят от контекста.** В них умножаются не веса, а активации, и $6P$ о них ничего не
# знает.
#
# Какая доля приходится на голову? В учебниках пишут «около 6 %», и это верно наполовину: ответ зависит от
# того, что считать целым.

# %%
head = flops["lm_head"]
conventions = {
    "без оценок внимания": flops.total - flops["scores"],
    "причинная половина, S = 8192": budget.flops_per_token(
        llama, attention="causal"
    ).total,
    "полный квадрат, S = 8192": flops.total,
}
table(
    ["что считать целым", "FLOPs на токен", "доля головы"],
    [(name, total, percent(head / total)) for name, total in conventions.items()],
    "Одна и та же голова, три разные доли",
)

# %%
assert head == 3_152_019_456
assert [round(1000 * head / total) for total in conventions.values()] == [70, 61, 54]

# %% [markdown]
# Все три числа верны. Ошибка — назвать долю и не назвать соглашение. Причинная маска оставляет половину пар
# «запрос — ключ», но многие счётчики всё равно считают полный квадрат, а ядра внимания маску и правда
# пропускают. Дальше на этой странице — полный квадрат, если не сказано иное.
#
# ### Когда внимание дороже весов
#
# Внимание делает на слой два произведения без весов: запросы на ключи и вероятности на значения. Каждое в
# прямом проходе стоит $2BNS^2H$ операций на весь пакет из $BS$ токенов. Обратный проход, как всегда, вдвое
# дороже прямого.
#
# ### Упражнение 4. FLOPs на токен с вниманием
#
# Напишите `flops_per_token(n_params, L, S, D)`: FLOPs обучения на один токен — правило 6N и к нему оба
# произведения внимания. `n_params` — это $N$ правила, голова не считается; $NH = D$; внимание — по полному
# квадрату $S \times S$.


# %% tags=["exercise"]
def flops_per_token(n_params, L, S, D):
    """FLOPs обучения на токен: 6N и внимание по полному квадрату."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сначала один слой и один прямой проход: поделите работу двух произведений на число токенов.
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/flops-per-token")`.
#
# </details>

# %% tags=["solution"]
if "flops_per_token" not in globals():  # ваш ответ остаётся на месте

    def flops_per_token(n_params, L, S, D):
        """FLOPs обучения на токен: 6N и внимание по полному квадрату."""
        return 6 * n_params + 12 * L * S * D


# %% tags=["check"]
check("9/flops-per-token", flops_per_token)

# %% [markdown]
# ### Граница
#
# Два произведения по $2BNS^2H$, поделённые на $BS$ токенов и умноженные на 3 (прямой проход и обратный) и на
# $L$, при $NH = D$ дают
#
# $$
# \text{оценки на токен} = 12LSD .
# $$
#
# Произведения на веса стоят $6 \cdot 12LD^2$. Сравниваем:
#
# $$
# 12LSD > 72LD^2 \quad\Longleftrightarrow\quad S > 6D .
# $$
#
# Квадрат по $S$ на всю последовательность — это прямая по $S$ на один токен. До границы модель почти не
# замечает длины, после — стоимость токена растёт вместе с контекстом.
#
# :::{admonition} Предскажите
# :class: hint
#
# Правило $6D$ для Llama-3-8B — это $6 \cdot 4096$. Настоящая граница окажется дальше или ближе? Вспомните,
# в какую сторону ошибалось $12LD^2$.
# :::

# %%
with_head = (flops["attention"] + flops["ffn"] + flops["lm_head"]) / (12 * L * N * H)
crossovers = {
    "правило 6D": 6 * D,
    "полный квадрат, без головы": budget.attention_crossover(llama),
    "полный квадрат, с головой": round(with_head),
    "причинная половина, без головы": budget.attention_crossover(llama, "causal"),
}
table(
    ["соглашение", "граница S, токенов"],
    crossovers.items(),
    "Где оценки внимания догоняют произведения на веса",
)

# %% tags=["hide-input"]
assert budget.attention_crossover(llama) == 26_624
contexts = [2.0**power for power in range(9, 19)]
per_token = {
    "произведения\nна веса, 6N": [
        (x, flops["attention"] + flops["ffn"]) for x in contexts
    ],
    "оценки,\nполный квадрат": [
        (x, budget.flops_per_token(llama, int(x))["scores"]) for x in contexts
    ],
    "оценки,\nпричинная\nполовина": [
        (x, budget.flops_per_token(llama, int(x), attention="causal")["scores"])
        for x in contexts
    ],
}
border = crossovers["полный квадрат, без головы"]
causal_border = crossovers["причинная половина, без головы"]
lines(
    {name: [(x, y / 1e9) for x, y in curve] for name, curve in per_token.items()},
    name="attention-crossover",
    title="С какого контекста внимание дороже весов",
    x="контекст S, токенов",
    y="GFLOPs на токен обучения",
    log="xy",
    x_ticks={2**power: number(2**power) for power in (10, 12, 14, 16, 18)},
    points={
        number(border): (border, per_token["произведения\nна веса, 6N"][0][1] / 1e9),
        number(causal_border): (
            causal_border,
            per_token["произведения\nна веса, 6N"][0][1] / 1e9,
            "se",
        ),
    },
    alt=f"Произведения на веса — горизонтальная прямая. Оценки внимания растут с контекстом и пересекают её при "
    f"{number(border)} токенах по полному квадрату и при {number(causal_border)} по причинной половине.",
    caption="Llama-3-8B, прямой и обратный проход. Точки — границы, вычисленные счётом.",
)

# %% tags=["remove-cell"]
prose(
    s_rule=number(6 * D),
    s_full=number(border),
    s_causal=number(causal_border),
    s_head=number(crossovers["полный квадрат, с головой"]),
    s_layer_params=short(exact.non_embedding),
    s_layer_rule=short(12 * L * D**2),
)

# %% [markdown]
# Правило обещает {glue:text}`s_rule`, счёт даёт {glue:text}`s_full`. Причина нам уже знакома: слои
# Llama-3-8B весят {glue:text}`s_layer_params`, а не {glue:text}`s_layer_rule`, и догонять вниманию
# приходится больше. Причинная маска убирает половину пар и отодвигает границу до {glue:text}`s_causal`.
# Если причислить к весам голову, выйдет {glue:text}`s_head`. Во всех случаях это за пределами контекста
# 8192, с которым модель обучали: там внимание — заметная, но не главная статья.

# %% [markdown]
# ### Из FLOPs — время
#
# Время — это работа, делённая на скорость. Работу мы считать умеем. Скорость на бумаге — пик карты, а на деле
# обучение тратит на полезные операции лишь его долю. Её называют {term}`MFU` {cite}`chowdhery2022`: у хорошо
# настроенного обучения это 35–50 %, мы берём 45 %. Пересчёт активаций в полезные операции не входит: он греет
# карту, но модель от него не умнее.
#
# ### Упражнение 5. Время обучения
#
# Напишите `training_days(n_params, tokens, gpus, peak_flops_per_s, mfu)`: сколько **суток** займёт обучение на
# `gpus` одинаковых картах. `peak_flops_per_s` — пик одной карты, FLOP/s; `mfu` — доля от 0 до 1. Работу
# возьмите по правилу 6N, без внимания.


# %% tags=["exercise"]
def training_days(n_params, tokens, gpus, peak_flops_per_s, mfu):
    """Сутки обучения на одинаковых картах."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Найдите по отдельности работу всего обучения и скорость всех карт вместе. Их отношение — секунды.
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/training-time")`.
#
# </details>

# %% tags=["solution"]
if "training_days" not in globals():  # ваш ответ остаётся на месте

    def training_days(n_params, tokens, gpus, peak_flops_per_s, mfu):
        """Сутки обучения на одинаковых картах."""
        flops = 6 * n_params * tokens
        return flops / (gpus * peak_flops_per_s * mfu) / 86_400


# %% tags=["check"]
check("9/training-time", training_days)

# %% [markdown]
# ### Смета
#
# :::{admonition} Математика D9. Время обучения модели 7B
# :class: note
#
# $$
# t = \frac{6PT}{G \cdot R \cdot \mathrm{MFU}}
# $$
#
# Здесь $P$ — параметры, $T$ — токены, $G$ — число карт, $R$ — плотный пик одной карты, FLOP/s. Размерности:
# операции делим на операции в секунду, остаются секунды. Формула линейна по каждой величине, поэтому
# сомнение в любой из них переносится в ответ один к одному: ошиблись в MFU на треть — ошиблись в сроке на
# треть.
#
# Считаем в уме для $P = 7 \cdot 10^9$, $T = 10^{12}$: $6 \cdot 7 = 42$, показатели $9 + 12 = 21$, итого
# $42 \cdot 10^{21}$. Пик H100 — около $10^{15}$, с MFU 45 % — $45 \cdot 10^{13}$ на карту. Делим: чуть
# меньше $10^8$ карто-секунд. В сутках $86\,400 \approx 10^5$ секунд, то есть около тысячи карто-суток:
# полмесяца с небольшим на 64 картах.
# :::

# %%
llama2 = preset("llama-2-7b")
tokens = 10**12
price = 2.5  # долларов за GPU-час; наше допущение, подставьте свою цену
plans = {
    cards: budget.training_time(llama2, tokens, "h100-sxm", gpus=cards, price=price)
    for cards in (8, 64, 512)
}
table(
    ["карт H100", "суток", "GPU-часов", "долларов"],
    [
        (str(cards), plan.days, round(plan.gpu_hours), round(plan.cost))
        for cards, plan in plans.items()
    ],
    "Llama-2-7B, 1 трлн токенов, MFU 45 %, контекст 4096",
)

# %%
# Столько токенов видела Llama-3-8B.
llama_plan = budget.training_time(
    llama, 15 * 10**12, "h100-sxm", gpus=512, price=price
)
print("FLOPs:", scientific(llama_plan.flops, 1))
print("суток на 512 картах:", decimal(llama_plan.days, 0))

# %%
by_hand = 6 * 7e9 * tokens / (64 * 4.5e14) / 86_400
print("прикидка, суток:", decimal(by_hand, 1))
print("счёт, суток:    ", decimal(plans[64].days, 1))
assert abs(by_hand / plans[64].days - 1) < 0.15

# %% tags=["remove-cell"]
prose(
    t_hand=decimal(by_hand, 0),
    t_exact=decimal(plans[64].days, 0),
    t_gap=percent(plans[64].days / by_hand - 1, 0),
    t_flops=scientific(plans[64].flops, 1),
    t_cost=short(plans[64].cost),
    t_price=decimal(price, 1),
    t_flops_six=scientific(6 * 7e9 * tokens, 1),
    t_llama_ratio=number(15e12 / exact.total, 0),
    t_llama_times=counted(15e12 / exact.total / 20, "раз", "раза", "раз"),
    t_llama_cost=short(llama_plan.cost, 2),
    t_lab_mfu=percent(4e13 / gpu("rtx-4080").rate("bf16"), 0),
    mfu_slow=decimal(
        budget.training_time(llama2, tokens, "h100-sxm", gpus=64, mfu=0.35).days, 0
    ),
    mfu_fast=decimal(
        budget.training_time(llama2, tokens, "h100-sxm", gpus=64, mfu=0.50).days, 0
    ),
)

# %% [markdown]
# Прикидка — {glue:text}`t_hand` суток, счёт — {glue:text}`t_exact`. Счёт добавил оценки внимания и голову:
# {glue:text}`t_flops` FLOPs вместо {glue:text}`t_flops_six`. Расхождение — {glue:text}`t_gap`, меньше
# неопределённости MFU, и для сметы прикидки довольно. Цена — около {glue:text}`t_cost` долларов по
# {glue:text}`t_price` доллара за GPU-час, сколько бы карт ни работало. Разброс честного MFU от 35 до 50 % —
# это от {glue:text}`mfu_slow` до {glue:text}`mfu_fast` суток; точнее знать срок заранее нельзя, и десятые
# доли суток в смете — самообман.
#
# Llama-3-8B обучали на 15 трлн токенов, по {glue:text}`t_llama_ratio` на параметр: в
# {glue:text}`t_llama_times` больше, чем советует Chinchilla, и по нашей цене это {glue:text}`t_llama_cost`
# долларов. Совет говорит о наименьшей работе *обучения*. Кто собирается моделью пользоваться, тот
# переучивает маленькую: каждый токен вывода обойдётся дешевле.
#
# :::{admonition} Три числа об одном
# :class: note
#
# В лабораторной 7.2 для MFU названо 30–50 %, здесь — 35–50 %, а пример из неё с картой RTX 4080
# соответствует {glue:text}`t_lab_mfu`. Это одна и та же величина при разной тщательности: первая вилка —
# для обычного кода на одной карте, вторая — для настроенного обучения.
# :::
#
# ### Ошибки шага

# %% tags=["hide-input"]
P = exact.non_embedding
tiny = budget.parameter_breakdown(toy)
mistake_table(
    [
        ("2N: забыт обратный проход", 2 * P, 6 * P),
        ("4N: забыт один из двух градиентов", 4 * P, 6 * P),
        ("эмбеддинг внутри 6N", 6 * (P + exact["embedding"]), 6 * P),
        (
            "эмбеддинг внутри 6N, учебная модель",
            6 * tiny.total,
            6 * tiny.non_embedding,
        ),
    ],
    "Ошибки в FLOPs на токен без головы и оценок внимания; первые три строки — Llama-3-8B",
)

# %% [markdown]
# - **$2N$ и $4N$.** $2N$ — стоимость прямого прохода, то есть вывода. $4N$ выходит, если взять прямой
#   проход и лишь один из двух градиентов; похожее число даёт и сам обратный проход. Шестёрка собирается
#   только из трёх двоек.
# - **Эмбеддинг внутри 6N.** У больших моделей ошибка мала, у маленьких — велика: последняя строка таблицы —
#   та самая модель в четыре слоя. Голову считайте отдельной строкой.
#
# :::{admonition} Запомните
# :class: tip
#
# Обучение — $6$ операций на параметр и токен, вывод — $2$. Внимание догоняет веса при $S \approx 6D$; для
# Llama-3-8B — при {glue:text}`s_full` (полный квадрат, без головы).
# :::
#
# <details class="nanolm-answer"><summary>Проверьте себя: откуда в 6N двойка и четвёрка?</summary>
#
# Двойка — прямой проход: одно умножение и одно сложение на каждый вес. Четвёрка — обратный: градиент по
# входу слоя и градиент по весу, каждый — произведение того же размера, что и прямое. Исключений почти нет:
# даже первому слою нужен градиент по входу, потому что через него учится эмбеддинг.
#
# </details>
#
# <details class="nanolm-answer"><summary>Проверьте себя: с какого контекста внимание дороже и почему?</summary>
#
# На токен: веса — $72LD^2$, оценки — $12LSD$. Отношение — $S / 6D$. Значит, граница — $S \approx 6D$, и чем
# шире модель, тем она дальше. У Llama-3-8B вместо $72LD^2$ стоит $6N$ настоящих слоёв, и граница сдвигается
# с {glue:text}`s_rule` до {glue:text}`s_full`.
#
# </details>

# %% [markdown]
# ## Шаг 3. Память
#
# ### Шестнадцать байт
#
# Обучение хранит на каждый параметр не только его самого. AdamW в смешанной точности держит пять величин:
#
# | что | формат | байт на параметр |
# |---|---|---|
# | вес, с которым считают | {term}`bfloat16` | 2 |
# | градиент | bfloat16 | 2 |
# | мастер-вес: точная копия, которую двигает оптимизатор | fp32 | 4 |
# | первый момент | fp32 | 4 |
# | второй момент | fp32 | 4 |
# | **всего** | | **16** |
#
# Мастер-вес нужен, потому что у bfloat16 лишь две-три десятичные цифры: шаг $10^{-5}$ от веса в нём просто
# пропадёт.
#
# :::{admonition} Предскажите
# :class: hint
#
# Чистая fp32 без всякого bfloat16: вес 4, градиент 4, два момента по 4. Сколько байт на параметр? Во
# сколько раз смешанная точность экономит память состояний?
# :::

# %%
STATES = ["weights", "master_weights", "gradients", "optimizer"]
recipes = {
    "mixed": "смешанная: bf16 + мастер-веса",
    "fp32": "чистая fp32",
    "autocast": "fp32 + autocast в bf16",
    "bf16": "чистая bf16",
}
rows = []
for recipe, title in recipes.items():
    account = budget.training_memory(llama, recipe=recipe)
    per_parameter = [account[part] / exact.total for part in STATES]
    columns = [*per_parameter, sum(per_parameter)]
    rows.append((title, *(number(value, 0) for value in columns)))
table(
    ["рецепт", "вес", "мастер-вес", "градиент", "моменты", "всего"],
    rows,
    "Байт на параметр, AdamW",
)

# %%
states = sum(budget.training_memory(llama)[part] for part in STATES)
assert states == 16 * exact.total
seven = 16 * 7 * 10**9
h100 = gpu("h100-sxm")
print("нужно: ", gb(seven, 1), "=", gib(seven, 1))
print("есть:  ", gb(h100.usable_bytes, 1), "=", gib(h100.usable_bytes, 1))
assert seven > h100.usable_bytes

# %% tags=["remove-cell"]
prose(
    m_seven_gb=gb(seven, 0),
    m_seven_gib=gib(seven, 1),
    m_states=gib(states, 1),
    m_gib_gap=percent(GIB / GB - 1),
    m_card_gib=gib(h100.usable_bytes, 1),
    m_card_gb=gb(h100.usable_bytes, 1),
)

# %% [markdown]
# Смешанная точность не экономит на состояниях **ничего**: $2 + 2 + 4 + 4 + 4$ и $4 + 4 + 8$ — одни и те же
# 16 байт. Она экономит на активациях и на времени: произведения в bfloat16 идут через тензорные ядра, а
# сохранённые тензоры вдвое короче. Чистая bf16 действительно вдвое легче, но копит ошибку округления в
# весах и моментах.
#
# Для 7 млрд параметров это {glue:text}`m_seven_gb`, или {glue:text}`m_seven_gib` — раньше первой активации.
# На H100 столько нет. Для Llama-3-8B состояния — {glue:text}`m_states`.
#
# :::{admonition} ГБ и ГиБ
# :class: warning
#
# Гигабайт — $10^9$ байт, гибибайт — $2^{30}$. Разница {glue:text}`m_gib_gap`, и её хватает, чтобы модель,
# которая «помещается», не поместилась. Подписи не помогают: на H100 написано «80 GB», в микросхемах —
# 80 ГиБ, а PyTorch видит {glue:text}`m_card_gib`, то есть {glue:text}`m_card_gb`: остальное заняли драйвер
# и служебные нужды. Поэтому здесь единица названа всегда, а вердикт выносится по доступной памяти.
# :::
#
# ### Активации: 384, 348 и сколько на самом деле
#
# {term}`Активации <активации>` — тензоры, которые прямой проход оставляет обратному. Чтобы получить
# $\partial W = x^\top \partial y$, надо помнить $x$; значит, каждое произведение хранит свой вход. SwiGLU
# добавляет промежуточные тензоры ширины $F$, наивное внимание — матрицу вероятностей $B \cdot N \cdot S^2$.
#
# Посчитаем тензоры блока на бумаге. Ширину $D$ имеют десять: вход блока, выход первой нормы, $q$, $k$, $v$,
# повёрнутые $q$ и $k$, выход внимания, второй остаток, выход второй нормы. Ширину $F$ — четыре: ворота,
# расширение, ворота после активации, их произведение. На токен и слой выходит $10D + 4F$ значений. Возьмём
# пакет из 8 последовательностей по 8192 токена в bfloat16.

# %%
B = 8
on_paper = (10 * D + 4 * F) * L * B * S * 2
accounts = {
    kind: budget.training_memory(llama, B=B, activations=kind)
    for kind in ("expanded", "all", "saved")
}
assert on_paper == accounts["expanded"]["activations"]
print(gib(on_paper, 1))

# %% [markdown]
# Но у Llama-3-8B ключи и значения занимают не $D$, а $KH = D/4$. Если $k$, $v$ и повёрнутый $k$ не
# размножать до всех голов, три тензора похудеют вчетверо. А если спросить не бумагу, а автоматическое
# дифференцирование, исчезнут ещё два: $q$ и $k$ до поворота никому не нужны — поворот RoPE обращается и без
# своего входа.

# %% tags=["hide-input"]
titles = {
    "expanded": "на бумаге: 10D + 4F",
    "all": "k, v и повёрнутый k на K голов",
    "saved": "держит autograd",
}
table(
    ["подсчёт", "активации, ГиБ", "значений на токен и слой, в D"],
    [
        (
            titles[kind],
            decimal(account["activations"] / GIB, 1),
            decimal(account["activations"] / (2 * L * B * S * D)),
        )
        for kind, account in accounts.items()
    ],
    "Llama-3-8B, 8 × 8192 токенов, bfloat16",
)

# %%
assert round(accounts["expanded"]["activations"] / GIB) == 384
assert round(accounts["all"]["activations"] / GIB) == 348
scores_tensor = B * N * S**2 * 2 * L  # одна матрица вероятностей bf16 на слой
assert scores_tensor == 1024 * GIB

# %% tags=["remove-cell"]
prose(
    a_expanded=gib(accounts["expanded"]["activations"], 0),
    a_all=gib(accounts["all"]["activations"], 0),
    a_saved=gib(accounts["saved"]["activations"], 1),
    a_naive=gib(scores_tensor, 0),
    a_states=gib(states, 1),
    a_ratio=decimal(accounts["saved"]["activations"] / states, 1),
    a_all_d=decimal((accounts["all"]["activations"]) / (2 * L * B * S * D)),
)

# %% [markdown]
# Три числа — три разных вопроса:
#
# - {glue:text}`a_expanded` — сколько весят все промежуточные тензоры, если реализация размножает ключи и
#   значения до $N$ голов, как делают многие;
# - {glue:text}`a_all` — то же, если они остаются на $K$ головах, это {glue:text}`a_all_d` $D$ значений на
#   токен и слой;
# - {glue:text}`a_saved` — что в самом деле остаётся до обратного прохода в NanoLM. Здесь уже есть и мелочи,
#   которых нет в подсчёте на бумаге: статистики норм и логарифмы сумм внимания в fp32.
#
# Даже наименьшее из них больше состояний ({glue:text}`a_states`) в {glue:text}`a_ratio` раза. Наивное
# внимание добавило бы ещё {glue:text}`a_naive`: по одной матрице $B \cdot N \cdot S^2$ на слой. Слитое ядро
# не хранит её вовсе.
#
# Формула грубо: активации — $O(B \cdot L \cdot S \cdot D)$. Отсюда и лекарства: меньше $B$ — микропакет и
# накопление градиентов; меньше сохранённых тензоров — {term}`чекпоинтинг` {cite}`korthikanti2022`.


# %% tags=["hide-input"]
def gibs(account):
    """Компоненты счёта, собранные для рисунка."""
    return {
        "состояния": sum(account[part] for part in STATES) / GIB,
        "активации": account["activations"] / GIB,
        "логиты и буферы": (
            account["logits"] + account["workspace"] + account["input"]
        )
        / GIB,
    }


setups = {
    "fp32, наивное внимание": {"recipe": "fp32", "attention": "naive"},
    "fp32": {"recipe": "fp32"},
    "autocast": {"recipe": "autocast"},
    "смешанная": {},
    "+ 8-битный Adam": {"optimizer": "adamw8bit"},
    "+ полный чекпоинтинг": {"optimizer": "adamw8bit", "checkpointing": "full"},
}
budgets = {
    name: budget.training_memory(llama, B=1, **options)
    for name, options in setups.items()
}
stacked_bars(
    {name: gibs(account) for name, account in budgets.items()},
    name="training-memory",
    title="Память обучения по рецептам",
    unit="ГиБ",
    label=lambda value: number(value, 0),
    threshold=(h100.usable_bytes / GIB, "доступно на H100"),
    alt="Составные столбцы, ГиБ: "
    + "; ".join(
        f"{name} — {gib(account.total, 0)}" for name, account in budgets.items()
    )
    + f". Черта — доступная память H100, {gib(h100.usable_bytes, 0)}.",
    caption="Llama-3-8B, одна последовательность из 8192 токенов, AdamW. Строка с плюсом добавляет меру к предыдущей.",
)

# %% tags=["hide-input"]
table(
    ["рецепт", *(f"{part}, ГиБ" for part in gibs(budgets["fp32"])), "всего, ГиБ"],
    [
        (
            name,
            *(decimal(value, 1) for value in gibs(account).values()),
            decimal(account.total / GIB, 1),
        )
        for name, account in budgets.items()
    ],
    "Те же числа таблицей",
)

# %% tags=["hide-input"]
checkpointed = budgets["+ полный чекпоинтинг"]
without = budgets["+ 8-битный Adam"]
table(
    ["момент шага", "без чекпоинтинга, ГиБ", "полный чекпоинтинг, ГиБ"],
    [
        (name, decimal(without.moments[name] / GIB, 1), decimal(size / GIB, 1))
        for name, size in checkpointed.moments.items()
    ],
    "Занято в каждый момент шага: последние две строки предыдущей таблицы",
)

# %%
# Слой, который обратный проход пересчитывает прямо сейчас, хранит то же, что без чекпоинтинга.
block = (without["activations"] - checkpointed["activations"]) / L
print("пик:", checkpointed.moment)
assert "recomputed" not in {line.name for line in checkpointed.details}

# %% tags=["remove-cell"]
prose(
    b_best=gib(budgets["+ полный чекпоинтинг"].total, 0),
    b_usable=gib(h100.usable_bytes, 0),
    b_checkpoint=gib(budgets["+ полный чекпоинтинг"]["activations"], 1),
    b_activations=gib(budgets["смешанная"]["activations"], 1),
    b_block=gib(block, 1),
    b_moment=checkpointed.moment,
    b_logits=gib(checkpointed["logits"] + checkpointed["workspace"], 1),
)

# %% [markdown]
# Даже одна последовательность со всеми мерами — {glue:text}`b_best` против {glue:text}`b_usable`. Чекпоинтинг
# сделал своё: {glue:text}`b_activations` активаций превратились в {glue:text}`b_checkpoint`, по одному входу на
# блок. Остальное обратный проход пересчитывает слой за слоем, и пересчитанный слой —
# {glue:text}`b_block` — на это время занимает рабочие буферы. Казалось бы, его надо прибавить к пику. Но пик — в
# другой момент, «{glue:text}`b_moment`»: там живы логиты и их градиент, {glue:text}`b_logits`, а к пересчёту они
# уже отпущены. Сумма в таблице — память в худший момент, а не всё, что побывало в памяти.
#
# Дальше на одной карте резать нечего: остались состояния, а их урезает только разделение между картами или
# отказ обучать все веса. Об этом — вопрос собеседования ниже.
#
# Обратите внимание и на последнее слагаемое столбцов. Логиты имеют ширину $V = 128\,256$, а функция потерь
# переводит их в fp32. У моделей с большим словарём это гигабайты, которых нет ни в одной формуле вида
# $O(BLSD)$.

# %% [markdown]
# ### Кеш KV
#
# При выводе модель пишет по токену и для каждого заново смотрит на все прошлые ключи и значения. Их не
# пересчитывают, а хранят: в каждом слое, для каждого токена каждой последовательности.
#
# ### Упражнение 6. Размер кеша
#
# Напишите `kv_cache_bytes(B, S, L, N, K, H, bytes_per_value)`: сколько **байт** занимает кеш пакета из $B$
# последовательностей по $S$ токенов. Аргументов дано больше, чем нужно: один из них лишний.


# %% tags=["exercise"]
def kv_cache_bytes(B, S, L, N, K, H, bytes_per_value):
    """Байты кеша KV: B последовательностей по S токенов."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Начните с одного токена в одном слое: сколько там чисел? Запрос прошлого токена больше никому не нужен.
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/kv-cache")`.
#
# </details>

# %% tags=["solution"]
if "kv_cache_bytes" not in globals():  # ваш ответ остаётся на месте

    def kv_cache_bytes(B, S, L, N, K, H, bytes_per_value):
        """Байты кеша KV: B последовательностей по S токенов."""
        return 2 * B * S * L * K * H * bytes_per_value


# %% tags=["check"]
check("9/kv-cache", kv_cache_bytes)

# %% [markdown]
# ### Сколько весит разговор
#
# $$
# \text{кеш KV} = 2 \cdot B \cdot S \cdot L \cdot K \cdot H \cdot \text{байт} .
# $$
#
# Двойка — ключ **и** значение. Голов — $K$, а не $N$: ради этого GQA и придумали.
#
# :::{admonition} Предскажите
# :class: hint
#
# Llama-3-8B, bfloat16: $2 \cdot 32 \cdot 8 \cdot 128 \cdot 2$ байт на токен. Все числа — степени двойки,
# считайте показатели. Сколько выйдет на 8192 токена?
# :::

# %%
cache = budget.kv_cache_bytes(llama)
without_gqa = budget.kv_cache_bytes(llama.replace(K=N))
print("на токен:      ", counted(cache.total // S, "байт", "байта", "байт"))
print("на 8192 токена:", gib(cache.total))
print("без GQA:       ", gib(without_gqa.total))
print(cache.explain())
assert cache.total == GIB

# %% [markdown]
# ### Упражнение 7. Кеш равен весам
#
# Веса одни на всех, а кеш у каждой последовательности свой. При каком-то пакете он сравняется с весами, и это
# рубеж: дальше память занимает в основном не модель. Напишите
# `crossover_batch(weight_bytes, S, L, K, H, bytes_per_value)` — этот пакет, в **последовательностях**.
# `weight_bytes` — сколько байт занимают все веса. Округлять не надо.


# %% tags=["exercise"]
def crossover_batch(weight_bytes, S, L, K, H, bytes_per_value):
    """Пакет, при котором кеш KV весит столько же, сколько веса."""
    return ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Сколько байт приносит с собой одна последовательность? Дальше — вопрос, сколько таких порций уместится в весах.
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/crossover-batch")`.
#
# </details>

# %% tags=["solution"]
if "crossover_batch" not in globals():  # ваш ответ остаётся на месте

    def crossover_batch(weight_bytes, S, L, K, H, bytes_per_value):
        """Пакет, при котором кеш KV весит столько же, сколько веса."""
        one_sequence = 2 * S * L * K * H * bytes_per_value
        return weight_bytes / one_sequence


# %% tags=["check"]
check("9/crossover-batch", crossover_batch)

# %% [markdown]
# ### Когда кеш догоняет веса

# %%
rows = []
for context in (2048, 4096, 8192, 32_768):
    one_sequence = budget.kv_cache_bytes(llama, S=context).total / GIB
    rows.append(
        (number(context), one_sequence, budget.crossover_batch(llama, context))
    )
table(
    ["контекст", "кеш одной последовательности, ГиБ", "кеш равен весам при пакете"],
    rows,
    "Сколько последовательностей весят столько же, сколько вся модель",
)

# %% tags=["hide-input"]
batches = range(0, 41, 2)
weights_gib = 2 * exact.total / GIB  # bf16
memory = {"веса": [(b, weights_gib) for b in batches]}
for context in (8192, 4096):
    one_sequence = budget.kv_cache_bytes(llama, S=context).total / GIB
    memory[f"кеш,\nS = {number(context)}"] = [(b, b * one_sequence) for b in batches]
equal = {context: budget.crossover_batch(llama, context) for context in (8192, 4096)}
lines(
    memory,
    name="cache-and-weights",
    title="Кеш догоняет веса",
    x="последовательностей в пакете B",
    y="ГиБ",
    points={
        f"B ≈ {number(batch, 0)}": (batch, weights_gib) for batch in equal.values()
    },
    alt=f"Веса — горизонтальная прямая {decimal(weights_gib)} ГиБ. Кеш растёт с пакетом: при контексте 8192 догоняет "
    f"веса около {number(equal[8192], 0)} последовательностей, при 4096 — около {number(equal[4096], 0)}.",
    caption="Llama-3-8B, bfloat16. Вдвое короче контекст — вдвое больше пакет.",
)

# %% tags=["remove-cell"]
prose(
    kv_token=number(cache.total // S // 1024),
    kv_full=gib(cache.total, 0),
    kv_mha=gib(budget.kv_cache_bytes(llama.replace(K=N)).total, 0),
    kv_weights=gb(2 * exact.total),
    kv_bytes=gb(cache.total),
    kv_equal=decimal(equal[8192], 2),
    kv_equal_round=number(equal[8192], 0),
    kv_equal_short=number(equal[4096], 0),
)

# %% [markdown]
# {glue:text}`kv_token` КиБ на токен, {glue:text}`kv_full` на 8192 токена; без GQA было бы
# {glue:text}`kv_mha`. Весь расчёт точки равенства — одно деление: {glue:text}`kv_weights` весов на
# {glue:text}`kv_bytes` кеша, {glue:text}`kv_equal`. Около {glue:text}`kv_equal_round` диалогов по 8 тысяч
# токенов — и половина памяти занята не моделью, а разговорами. При 4096 — около
# {glue:text}`kv_equal_short`.
#
# То же для любой модели, пакета и контекста — двигайте ползунки.
#
# ```{live} kv
# ```
#
# ### Шаг декодирования: за что ждём
#
# Чтобы выдать по одному токену на последовательность, карта читает из памяти все веса и весь кеш и делает
# $2P$ операций на токен. Чтение и счёт идут одновременно, ждать приходится дольшего {cite}`pope2022`:
#
# $$
# t = \max\!\left(\frac{\text{байты весов} + \text{байты кеша}}{\text{пропускная способность}},\;
# \frac{\text{FLOPs}}{\text{пик}}\right) .
# $$


# %% tags=["hide-input"]
def step_row(b, context):
    """Строка таблицы: из чего складывается шаг декодирования."""
    step = budget.decode_step_time(llama, b, context, h100)
    seconds = (
        step.weight_bytes / h100.bandwidth_bytes_per_s,
        step.cache_bytes / h100.bandwidth_bytes_per_s,
    )
    parts = (*seconds, step.compute_seconds, step.seconds)
    return (
        str(b),
        *(decimal(1000 * part) for part in parts),
        round(step.tokens_per_s),
        step.bound,
    )


table(
    ["пакет", "веса, мс", "кеш, мс", "счёт, мс", "шаг, мс", "токенов/с", "предел"],
    [step_row(b, 8192) for b in (1, 4, 15, 30, 60)],
    "Llama-3-8B на H100, контекст 8192: нижняя граница времени шага",
)

# %% tags=["hide-input"]
step_batches = [2**power for power in range(9)]
one = budget.decode_step_time(llama, 1, 8192, h100)
read_equal = (
    one.weight_bytes / one.cache_bytes
)  # пакет, при котором кеш читается столько же, сколько веса
steps = {
    "чтение весов": lambda step: step.weight_bytes / h100.bandwidth_bytes_per_s,
    "чтение кеша": lambda step: step.cache_bytes / h100.bandwidth_bytes_per_s,
    "вычисления": lambda step: step.compute_seconds,
}
lines(
    {
        name: [
            (b, 1000 * part(budget.decode_step_time(llama, b, 8192, h100)))
            for b in step_batches
        ]
        for name, part in steps.items()
    },
    name="decode-step",
    title="Из чего складывается шаг декодирования",
    x="последовательностей в пакете B",
    y="мс на шаг",
    log="xy",
    x_ticks={b: str(b) for b in step_batches},
    y_ticks={
        value: number(value, digits)
        for value, digits in ((0.01, 2), (0.1, 1), (1, 0), (10, 0), (100, 0))
    },
    alt="Чтение весов не зависит от пакета. Чтение кеша и вычисления растут вместе с пакетом, но вычисления всегда "
    "меньше: при контексте 8192 шаг упирается в память при любом пакете.",
    points={
        f"B ≈ {number(read_equal, 0)}": (
            read_equal,
            1000 * one.weight_bytes / h100.bandwidth_bytes_per_s,
        )
    },
    caption="Llama-3-8B на H100, контекст 8192, bfloat16. Время шага — большее из чтения (веса и кеш) и вычислений.",
)

# %%
print("С какого пакета шаг упирается в вычисления:")
for context in (128, 256, 512, 1024, 8192):
    print(
        f"  контекст {context}:",
        budget.critical_batch(llama, context, h100) or "ни с какого",
    )
short_context = budget.critical_batch(llama, 128, h100)
assert budget.critical_batch(llama, 8192, h100) is None

# %% tags=["remove-cell"]
prose(
    d_one=decimal(1000 * one.seconds, 1),
    d_one_rate=number(round(1 / one.seconds)),
    d_compute=decimal(1e6 * one.compute_seconds, 0),
    d_equal=number(read_equal, 0),
    d_short=number(short_context),
    d_intensity=number(round(h100.rate("bf16") / h100.bandwidth_bytes_per_s)),
)

# %% [markdown]
# При одном диалоге шаг занимает {glue:text}`d_one` мс, и почти всё это — чтение весов; сами вычисления
# длятся {glue:text}`d_compute` мкс. Больше {glue:text}`d_one_rate` токенов в секунду один диалог на этой
# карте не получит, каким бы быстрым ни был код, — пока веса в bf16, а токены пишутся по одному. Второй
# диалог почти бесплатен: веса уже прочитаны. Но кеш у каждого свой. С пакета около {glue:text}`d_equal` шаг
# — это в основном чтение кеша, и новые диалоги перестают быть бесплатными. Это чуть раньше, чем
# {glue:text}`kv_equal_round`: таблицу эмбеддингов шаг не читает, из неё нужна лишь строка на токен.
#
# Можно ли сделать пакет таким, чтобы карта упёрлась в вычисления? На байт чтения H100 успевает около
# {glue:text}`d_intensity` операций. При контексте 128 хватает пакета в {glue:text}`d_short`
# последовательностей. При 8192 не хватит никакого (функция возвращает `None`): с каждым диалогом приходит
# его кеш, и читать его дольше, чем считать.
#
# ### Ошибки шага

# %% tags=["hide-input"]
true_cache = cache.total
paper = accounts["expanded"]["activations"]
mistake_table(
    [
        (
            "кеш по N головам, а не по K",
            budget.kv_cache_bytes(llama.replace(K=N)).total,
            true_cache,
        ),
        ("забыта двойка: ключ без значения", cache["key"], true_cache),
        ("биты вместо байт: 16 вместо 2", 8 * true_cache, true_cache),
        ("моменты Adam посчитаны один раз", 12 * exact.total, 16 * exact.total),
        (
            "ГБ приняты за ГиБ: веса",
            round(2 * exact.total / GB * GIB),
            2 * exact.total,
        ),
        ("в активациях забыт пакет", paper // B, paper),
        ("в активациях забыты слои", paper // L, paper),
    ],
    "Ошибки в памяти, Llama-3-8B, ГиБ",
    show=lambda size: gib(size, 1),
)

# %% tags=["remove-cell"]
prose(
    e_16gb=gib(16 * GB, 1),
)

# %% [markdown]
# - **Кеш по $N$ головам.** Ошибка ровно в $N/K$ раз. Проверка: у одной последовательности Llama-3-8B должно
#   выйти {glue:text}`kv_token` КиБ на токен.
# - **Забыта двойка.** Если кеш вдвое меньше ожидаемого, вы посчитали только ключи.
# - **Биты вместо байт.** «bf16» — 16 бит, то есть два байта. Ошибка в восемь раз видна сразу, если помнить,
#   что веса 8B — около 16 ГБ.
# - **Моменты один раз.** У Adam их два: среднее и средний квадрат. С одним выходит 12 байт на параметр, а
#   не 16.
# - **Пакет или слои забыты.** Каждый слой хранит своё для каждого токена каждой последовательности. Формула
#   без $L$ опишет один слой, без $B$ — одну последовательность.
# - **ГБ вместо ГиБ.** 16 ГБ — это {glue:text}`e_16gb`. Спутайте единицы в бюджете — и запас в несколько
#   процентов останется только на бумаге.
#
# :::{admonition} Запомните
# :class: tip
#
# 16 байт на параметр: 7B — {glue:text}`m_seven_gb` до первой активации. Кеш Llama-3-8B —
# {glue:text}`kv_token` КиБ на токен; около {glue:text}`kv_equal_round` последовательностей по 8192 весят
# как вся модель.
# :::
#
# <details class="nanolm-answer"><summary>Проверьте себя: откуда 16 байт и что меняет смешанная точность?</summary>
#
# Вес bf16 — 2, градиент bf16 — 2, мастер-вес fp32 — 4, два момента fp32 — 8. В чистой fp32 — 4 + 4 + 8, те
# же 16. Смешанная точность уменьшает активации и время шага, но не память состояний.
#
# </details>

# %% [markdown]
# ## Подтверждаем прогноз измерением
#
# Прогноз, который нельзя опровергнуть, ничего не стоит. `verify` из `nanolm.probe` строит модель тех же
# размеров, делает шаг обучения и кладёт рядом два числа: обещанное счётом и измеренное. Параметры пересчитаны
# по тензорам, FLOPs — счётчиком PyTorch, сохранённое для обратного прохода — перехватом autograd, пик памяти —
# по событиям распределителя.
#
# Модель возьмём крошечную, на секунды работы процессора, но неудобную: $NH \ne D$, $K \ne N$, словарь — простое
# число. Случайно совпасть тут нечему.
#
# :::{admonition} Предскажите
# :class: hint
#
# Какие величины сойдутся до единицы, а какие — лишь примерно? Во сколько раз больше работы выполнит обратный
# проход, если включить полный чекпоинтинг?
# :::

# %%
mini = Spec(V=131, D=96, L=3, N=6, K=2, H=24, F=160, S=128)
variants = {
    "fp32": (mini, {}),
    "bf16": (mini, {"recipe": "bf16"}),
    "наивное внимание": (mini, {"attention": "naive"}),
    "полный чекпоинтинг": (mini, {"checkpointing": "full"}),
    "смесь экспертов": (mini.replace(experts=4, experts_per_token=2), {}),
    "связанная голова, mixed": (
        mini.replace(tie_embeddings=True),
        {"recipe": "mixed"},
    ),
}
try:
    import torch
    from nanolm.probe import verify
except ImportError:
    torch, verified = None, {}
    print("PyTorch не установлен: измерить нечем, раздел останется без чисел")
else:
    # Рабочая память ядер зависит от процессора и числа потоков: на странице её строки нет.
    verified = {
        name: [
            row
            for row in verify(spec, B=2, **options)
            if row.name != "peak.with_scratch"
        ]
        for name, (spec, options) in variants.items()
    }
    print("сверено строк:", sum(map(len, verified.values())))


# %% tags=["hide-input"]
def signed(gap):
    """Разница со знаком."""
    return f"+{number(gap)}" if gap > 0 else number(gap)


table(
    ["величина", "прогноз", "измерено", "разница"],
    [
        (row.title, row.predicted, row.measured, signed(row.measured - row.predicted))
        for row in verified.get("fp32", [])
    ],
    "Один шаг обучения: fp32, слитое внимание, пакет 2 × 128. Байты и FLOPs — на весь пакет",
)

# %% [markdown]
# То же для всех вариантов. Число без скобок равно прогнозу до единицы.


# %% tags=["hide-input"]
def measured(row):
    """Измеренное; если оно не равно прогнозу — в скобках, насколько разошлось."""
    gap = row.measured - row.predicted
    return number(row.measured) + (f" ({signed(gap)})" if gap else "")


found = {name: {row.name: row for row in rows} for name, rows in verified.items()}


def side_by_side(columns, caption, last=None):
    """Варианты построчно; `last` — заголовок столбца с моментом пика."""
    return table(
        ["вариант", *columns.values(), *([last] if last else [])],
        [
            (
                name,
                *(measured(rows[key]) for key in columns),
                *([rows["peak"].title.partition("(")[2].rstrip(")")] if last else []),
            )
            for name, rows in found.items()
        ],
        caption,
    )


side_by_side(
    {
        "parameters": "параметров",
        "flops.forward": "прямой проход",
        "flops.backward": "обратный",
        "flops.backward_hardware": "обратный, выполнено",
    },
    "Параметры и FLOPs",
)

# %% tags=["hide-input"]
side_by_side(
    {"saved": "сохранено", "optimizer": "моменты Adam", "kv_cache": "кеш KV"},
    "Память, байт",
)

# %% tags=["hide-input"]
side_by_side({"peak": "пик шага"}, "Пик памяти, байт", last="момент пика")

# %%
# Строки exact обязаны совпасть до единицы. Пик — нет: в нём есть и рабочие буферы ядер, свои у
# каждого процессора. Если он ушёл дальше двух процентов, ячейка это скажет.
for name, rows in verified.items():
    for row in rows:
        assert not row.exact or row.measured == row.predicted, (name, row)
        if not row.passed:
            print(
                f"{name}: {row.title} отличается от прогноза на {percent(row.ratio - 1)}"
            )

# %% [markdown]
# Теперь модель, которой на этой машине не поместиться. На мета-устройстве у тензоров есть размеры, но нет
# памяти, и счётчику FLOPs этого довольно: он смотрит на размеры. Так сверяется сама Llama-3-8B.

# %%
on_meta = verify(llama, B=1, device="meta") if torch else []
for row in on_meta:
    if row.name in ("parameters", "flops.forward", "flops.backward"):
        print(f"{row.title:24}", number(row.predicted), "=", number(row.measured))
        assert row.measured == row.predicted

# %% tags=["hide-input"]
kinds = {"параметров": "параметры", "FLOPs": "FLOPs", "байт": "байты"}
checked = [row for rows in verified.values() for row in rows]
dots = {
    title: [(row.predicted, row.measured) for row in checked if row.unit == unit]
    for unit, title in kinds.items()
}
large = {row.name: (row.predicted, row.measured) for row in on_meta}
scatter(
    dots,
    name="forecast-and-measurement",
    title="Прогноз и измерение",
    x="прогноз",
    y="измерено",
    diagonal="измерено = прогноз",
    points={
        "Llama-3-8B, параметры": large["parameters"],
        "Llama-3-8B, прямой проход": large["flops.forward"],
    },
    alt=f"На двойной логарифмической шкале {len(checked)} точек: параметры, FLOPs и байты шести вариантов. Все лежат "
    f"на диагонали, и на ней же параметры Llama-3-8B, {short(large['parameters'][1])}, и её прямой проход, "
    f"{scientific(large['flops.forward'][1])} FLOPs.",
    caption="Каждая точка — строка сверки: шесть вариантов крошечной модели и Llama-3-8B на мета-устройстве. Отличие "
    "пика памяти от прогноза на такой шкале не видно.",
) if verified else "Рисунка нет: PyTorch не установлен"

# %% tags=["remove-cell"]


def bytes_text(size):
    """«4 байта», «5 байт»."""
    return f"{number(size)}{NBSP}{plural(size, 'байт', 'байта', 'байт')}"


peaks = {
    name: next(row for row in rows if row.name == "peak")
    for name, rows in verified.items()
}
gaps = {name: row.measured - row.predicted for name, row in peaks.items()}
worst = max(gaps, key=gaps.get, default="—")
rest = max((gap for name, gap in gaps.items() if name != worst), default=0)
full = {row.name: row.measured for row in verified.get("полный чекпоинтинг", [])}
moments = {
    name: row.title.partition("(")[2].rstrip(")") for name, row in peaks.items()
}
prose(
    v_exact=number(sum(row.exact for row in checked)) if checked else "—",
    v_gap=bytes_text(gaps[worst]) if gaps else "—",
    v_gap_share=percent(peaks[worst].ratio - 1) if gaps else "—",
    v_gap_where=worst,
    v_moment=moments.get("fp32", "—"),
    v_moment_naive=moments.get("наивное внимание", "—"),
    v_moment_full=moments.get("полный чекпоинтинг", "—"),
    v_gap_rest=f"{number(rest)}{NBSP}байт" if gaps else "—",
    v_backward=decimal(full["flops.backward_hardware"] / full["flops.backward"], 1)
    if full
    else "—",
)  # fmt: skip

# %% [markdown]
# ### Что точно, а что примерно
#
# - **До единицы** сошлись {glue:text}`v_exact` строк: параметры по компонентам, FLOPs, сохранённые тензоры,
#   веса, градиенты, моменты, кеш. Здесь допуска нет и быть не может: счёт и модель описывают одно и то же, и
#   любое расхождение — ошибка в ком-то из них.
# - **В пределах 2 %** — пик памяти. Кроме тензоров, о которых знает счёт, в нём мелькают временные копии и
#   одиночные числа вроде значения функции потерь. Наибольшее расхождение здесь — {glue:text}`v_gap`,
#   {glue:text}`v_gap_share` пика, у варианта «{glue:text}`v_gap_where`»; у остальных — не больше
#   {glue:text}`v_gap_rest`. Ещё сами ядра берут рабочую память; она зависит от процессора и числа потоков,
#   поэтому в командной строке проба показывает её отдельно.
# - **Не обещано вовсе** — время. Счёт называет его нижнюю границу, а сколько до неё — вопрос к
#   `python -m nanolm.probe speed`.
#
# Посмотрите на столбец «момент пика»: у одной и той же модели он разный. В fp32 худший миг —
# «{glue:text}`v_moment`», с наивным вниманием — «{glue:text}`v_moment_naive`», с чекпоинтингом —
# «{glue:text}`v_moment_full`» уже пересчитанного слоя. Сложить всё, что побывало в памяти, — завысить пик;
# сложить одно сохранённое — занизить.
#
# С полным чекпоинтингом обратный проход выполнил в {glue:text}`v_backward` раза больше работы, чем в нём
# пользы: прямой проход слоёв повторился — весь, кроме последнего произведения слоя, чей результат никому не
# нужен. Слитое внимание тоже пересчитывает оценки, поэтому «выполнено» больше полезного во всех строках, кроме
# наивного внимания. Для MFU берут полезные операции, для прогноза времени — выполненные.
#
# ### Слепые пятна счётчика
#
# Счётчик PyTorch знает не все операции, и о незнакомой не предупреждает: пишет ноль. На процессоре это слитое
# внимание, у библиотечных смесей экспертов — сгруппированные произведения, где у каждой группы строк своя
# матрица.


# %%
def blind_spots():
    """Что говорят о двух операциях счётчик PyTorch, проба и формула."""
    from nanolm.counter import count
    from torch.nn.functional import grouped_mm, scaled_dot_product_attention
    from torch.utils.flop_counter import FlopCounterMode

    q = torch.ones(1, 4, 16, 32)  # B, N, S, H
    x, experts = torch.ones(24, 16), torch.ones(3, 16, 8)  # по 8 строк на эксперта
    ends = torch.tensor([8, 16, 24], dtype=torch.int32)
    operations = {
        "слитое внимание": (
            lambda: scaled_dot_product_attention(q, q, q),
            4 * 4 * 16**2 * 32,  # 4·B·N·S²·H
        ),
        "сгруппированное произведение": (
            lambda: grouped_mm(x, experts, offs=ends),
            2 * 24 * 16 * 8,  # 2bnm
        ),
    }
    for name, (operation, flops) in operations.items():
        with FlopCounterMode(display=False) as counter:
            operation()
        yield name, counter.get_total_flops(), count(operation), flops


table(
    ["операция", "счётчик PyTorch", "проба", "формула"],
    blind_spots() if torch else [],
    "FLOPs прямого прохода на процессоре",
)

# %% [markdown]
# Проба добавляет счётчику недостающие формулы, и для обратного прохода тоже. Кто верит голому счётчику, тот на
# процессоре теряет всё внимание и занижает свой MFU. А сверка чего-то стоит, лишь когда стороны независимы:
# здесь одна читает таблицу операций, другая смотрит на ядра, которые действительно запустились.
#
# ### На видеокарте
#
# Там пик показывает `torch.cuda.max_memory_allocated()`, на Mac — `torch.mps.current_allocated_memory()`. Три
# правила честного сравнения:
#
# - сбросьте пик перед шагом и сделайте один шаг вхолостую: библиотека матричных произведений при первом
#   вызове занимает рабочий буфер;
# - сравнивайте с «allocated», а не с «reserved» и не с показанием `nvidia-smi`: там ещё запас
#   распределителя и контекст CUDA;
# - сверяйте по компонентам: веса — после загрузки, градиенты — после обратного прохода, моменты — после
#   первого шага оптимизатора. Сумма может совпасть и случайно.
#
# Всё это делает та же проба. Модель возьмём покрупнее, со смешанной точностью. Где есть CUDA, следующая ячейка
# измерит её и оставит запись; где нет — ниже стоит прошлая запись, а пока её не сделали, один прогноз.

# %%
from pathlib import Path

RECORD = Path("lessons/records" if Path("lessons").is_dir() else "records")
RECORD /= "week_09_verify.json"
card_spec = Spec(V=32_000, D=768, L=12, N=12, K=4, H=64, F=2048, S=1024)
card_batch, card_recipe = 8, "mixed"
print(short(budget.parameter_breakdown(card_spec).total), "параметров")

# %% tags=["gpu"]
if torch and torch.cuda.is_available():
    from nanolm import probe

    sizes = {
        **{letter: getattr(card_spec, letter) for letter in "VDLNKHFS"},
        "B": card_batch,
    }
    command = [
        word for letter, size in sizes.items() for word in (f"--{letter}", str(size))
    ]
    command += ["--recipe", card_recipe, "--device", "cuda", "--record", str(RECORD)]
    try:
        probe.main(["verify", *command])
    except SystemExit:
        print("измерить не удалось, причина — строкой выше")

# %% tags=["hide-input"]
from nanolm import records


def card_record():
    """Запись измерения этой самой модели; None, если её ещё нет."""
    if not RECORD.is_file():
        return None
    found = records.load(RECORD)
    work = found["workload"]
    same = Spec(**found["spec"]) == card_spec
    same = same and (work["B"], work["recipe"]) == (card_batch, card_recipe)
    return found if same else None


def card_forecast():
    """Прогноз теми же именами, что в записи."""
    account = budget.training_memory(card_spec, card_batch, recipe=card_recipe)
    saved = budget.saved_tensor_bytes(card_spec, card_batch, recipe=card_recipe)
    cache = budget.kv_cache_bytes(card_spec, card_batch)
    return {
        **{part: (budget.TITLES[part], account[part]) for part in STATES},
        "saved": ("сохранено для обратного прохода", sum(saved.values())),
        "kv_cache": ("кеш KV", cache.total),
        "peak": ("пик памяти шага", account.total),
    }


record = card_record()
found = record["bytes"] if record else {}
table(
    ["величина", "прогноз, байт", "измерено, байт", "измерено / прогноз"],
    [
        (title, size, found.get(name, "—"), number(found[name] / size, 4) if name in found else "—")
        for name, (title, size) in card_forecast().items()
    ],
    f"{record['machine']['name']}, {record['measured_at'][:10]}, torch {record['software']['torch']}"
    if record
    else "Измерения на видеокарте ещё нет: только прогноз",
)  # fmt: skip

# %% tags=["remove-cell"]
prose(
    c_status=f"Запись сделана {record['measured_at'][:10]} на карте {record['machine']['name']}."
    if record
    else "Записи с видеокарты пока нет, и придумывать её мы не станем: в таблице один прогноз.",
)

# %% [markdown]
# {glue:text}`c_status` Та же сверка из командной строки — `python -m nanolm.probe verify`, с `--json` для
# программы. Она принимает и пресеты, и ваш `config.json`, а если строка, обязанная совпасть, не совпала,
# возвращает код 1.

# %% [markdown]
# ## Вопрос собеседования
#
# > Поместится ли полное дообучение модели 7B на одну H100 с 80 ГБ?
#
# Сначала ответьте сами, вслух и с часами: три минуты. Потом сравните.

# %% tags=["hide-input"]
seven_b = 7 * 10**9


def zero(stage, cards):
    """Байт на параметр на карту: ZeRO делит моменты и мастер-веса, затем градиенты, затем веса."""
    weights, gradients, optimizer = 2, 2, 12
    return (
        (weights / cards if stage >= 3 else weights)
        + (gradients / cards if stage >= 2 else gradients)
        + (optimizer / cards if stage >= 1 else optimizer)
    )


table(
    ["как делим", "1 карта", "2 карты", "4 карты", "8 карт"],
    [
        (
            title,
            *(
                decimal(zero(stage, cards) * seven_b / GB, 1)
                for cards in (1, 2, 4, 8)
            ),
        )
        for stage, title in enumerate(
            (
                "не делим",
                "ZeRO-1: состояние оптимизатора",
                "ZeRO-2: и градиенты",
                "ZeRO-3 / FSDP: и веса",
            )
        )
    ],
    "Состояния модели 7B на одной карте, ГБ",
)

# %% tags=["hide-input"]
rank = 16
# Каждой матрице «вход × выход» LoRA добавляет две узкие: вход × rank и rank × выход.
qkv = [
    (llama2.D, llama2.N * llama2.H),
    *[(llama2.D, llama2.K * llama2.H)] * 2,
    (llama2.N * llama2.H, llama2.D),
]
feed_forward = [(llama2.D, llama2.F)] * 2 + [(llama2.F, llama2.D)]
adapters = llama2.L * sum(
    rank * (inputs + outputs) for inputs, outputs in qkv + feed_forward
)
eight_bit = (2 + 2 + 4 + 1 + 1) * seven_b
lora = 2 * seven_b + 16 * adapters
micro = {
    (b, kind): budget.training_memory(llama2, B=b, checkpointing=kind)
    for b in (8, 1)
    for kind in ("none", "full")
}
held = {setup: account["activations"] for setup, account in micro.items()}
# Пик — на логитах, а не на пересчитываемом блоке.
assert "recomputed" not in {line.name for line in micro[1, "full"].details}
table(
    ["пакет", "без чекпоинтинга, ГБ", "полный чекпоинтинг, ГБ"],
    [
        (str(b), *(decimal(held[b, kind] / GB, 1) for kind in ("none", "full")))
        for b in (8, 1)
    ],
    "Активации Llama-2-7B, контекст 4096",
)

# %% tags=["remove-cell"]
prose(
    i_states=gb(16 * seven_b, 0),
    i_two=gb(zero(3, 2) * seven_b, 0),
    i_eight=gb(zero(3, 8) * seven_b, 0),
    i_8bit=gb(eight_bit, 0),
    i_act=gb(held[8, "none"], 0),
    i_act_best=gb(held[1, "full"], 1),
    i_block=gb((held[1, "none"] - held[1, "full"]) / llama2.L, 1),
    i_adapters=short(adapters),
    i_adapter_share=percent(adapters / budget.parameter_breakdown(llama2).total),
    i_lora=gb(lora, 1),
    i_usable=gb(h100.usable_bytes, 0),
)

# %% [markdown]
# <details class="nanolm-answer"><summary>Ответ на три минуты</summary>
#
# **Коротко.** Нет: одни состояния занимают {glue:text}`i_states`, на карте доступно {glue:text}`i_usable`.
#
# **Почему.** AdamW в смешанной точности хранит на параметр 16 байт: вес и градиент в bf16 — 2 + 2,
# мастер-вес и два момента в fp32 — 4 + 4 + 4. Семь миллиардов на шестнадцать — {glue:text}`i_states`, и это
# до первой активации. В чистой fp32 — те же 16 байт, так что сменой точности не спастись.
#
# **Что делать, по порядку.**
#
# 1. **Разделить состояния между картами.** ZeRO-3, он же FSDP, делит все 16 байт. На двух картах — по
#    {glue:text}`i_two`, тесно; на восьми — по {glue:text}`i_eight`, и остаётся место активациям. Цена —
#    обмен весами на каждом слое.
# 2. **Сжать моменты до 8 бит.** Вместо 4 + 4 байт — 1 + 1, всего 10 байт на параметр, {glue:text}`i_8bit`,
#    если не считать масштабов блоков. На карту с {glue:text}`i_usable` доступной памяти состояния встают,
#    но активациям остаётся мало.
# 3. **Урезать активации.** Микропакет с накоплением градиентов и чекпоинтинг: вместо {glue:text}`i_act` при
#    пакете 8 — {glue:text}`i_act_best` при пакете 1. Блок, который пересчитывается прямо сейчас, —
#    {glue:text}`i_block` — пика не поднимает: к его времени логиты уже отпущены. Цена чекпоинтинга — ещё один
#    прямой проход, около трети времени. Без первых двух мер это не поможет: состояния от пакета не зависят.
# 4. **Не обучать всё.** LoRA ранга 16 на всех матрицах блока — {glue:text}`i_adapters` обучаемых
#    параметров, {glue:text}`i_adapter_share`. Замороженные веса — 2 байта на параметр, обучаемые — по 16:
#    вместе {glue:text}`i_lora`. Помещается, но это уже не полное дообучение — и это стоит сказать вслух.
#
# **Чем закончить.** Назвать, чего вы не учли: логиты в fp32, буферы, фрагментацию — и что прогноз
# проверяется одним шагом под `max_memory_allocated()`.
#
# </details>

# %% [markdown]
# ## Углублённая часть
#
# ### Точная память активаций
#
# Формула $10D + 4F$ считает тензоры на бумаге. Счёт `activations="saved"` перечисляет то, что удержит
# автоматическое дифференцирование. Строки, у которых есть буква $L$, — это один блок; разделим их на число
# слоёв и токенов.

# %% tags=["hide-input"]
step = budget.training_memory(llama)
kept = [
    line
    for line in step.details
    if line.component == "activations" and line.letters.startswith("L·")
]
table(
    ["тензор", "формула", "байт на токен и слой"],
    [(line.title, line.letters, line.value // (L * S)) for line in kept],
    "Что блок Llama-3-8B хранит до обратного прохода, слитое внимание, bfloat16",
)

# %%
per_token_layer = sum(line.value for line in kept) // (L * S)
by_formula = 2 * (7 * D - N * H + 2 * K * H + 4 * F) + 4 * (N + 2)
print(counted(per_token_layer, "байт", "байта", "байт"), "на токен и слой")
assert per_token_layer == by_formula

# %% tags=["remove-cell"]
prose(
    x_bytes=counted(per_token_layer, "байт", "байта", "байт"),
    x_big_d=decimal((per_token_layer - 4 * (N + 2)) / 2 / D, 1),
    x_small=number(4 * (N + 2)),
    x_selective=gib(
        budget.training_memory(llama, checkpointing="none", attention="naive")[
            "activations"
        ]
        - budget.training_memory(llama, checkpointing="selective", attention="naive")[
            "activations"
        ],
        0,
    ),
    x_selective_fused=gib(
        budget.training_memory(llama)["activations"]
        - budget.training_memory(llama, checkpointing="selective")["activations"],
        2,
    ),
)

# %% [markdown]
# Итого {glue:text}`x_bytes` на токен и слой, то есть {glue:text}`x_big_d` $D$ значений bfloat16 и ещё
# {glue:text}`x_small` байт статистик в fp32. В формулах `stream` — точность остаточного потока, `compute` —
# точность вычислений; при смешанной точности обе bfloat16. Проверьте по списку: нет $q$ и $k$ до поворота,
# нет остатка после полносвязного блока — он же вход следующего блока и там уже посчитан.
#
# Выборочный чекпоинтинг {cite}`korthikanti2022` пересчитывает только ядро внимания. Когда ядро наивное, это
# спасает {glue:text}`x_selective` на одной последовательности из 8192 токенов. Когда слитое —
# {glue:text}`x_selective_fused`: оно уже само пересчитывает вероятности в обратном проходе, и спасать
# нечего. Совет из статьи 2022 года незаметно стал частью ядра.
#
# ### MFU и деньги
#
# Пусть обучение идёт, и нужно узнать, хорошо ли. Измерьте токены в секунду, умножьте на FLOPs токена и
# поделите на пик.

# %%
# Пример: допустим, одна H100 обрабатывает столько токенов в секунду.
tokens_per_s = 10_000
flops_token = budget.flops_per_token(llama2).total
mfu = tokens_per_s * flops_token / h100.rate("bf16")
# С полным чекпоинтингом прямой проход делают дважды: 4 единицы работы вместо 3.
recomputed = mfu * 4 / 3
print("полезно:      ", percent(mfu))
print("с пересчётом: ", percent(recomputed))

# %% tags=["hide-input"]
table(
    ["MFU", "суток на 64 картах", "долларов"],
    [
        (percent(rate, 0), decimal(plan.days, 1), round(plan.cost))
        for rate, plan in (
            (
                rate,
                budget.training_time(
                    llama2, tokens, h100, gpus=64, mfu=rate, price=price
                ),
            )
            for rate in (0.2, 0.35, 0.45, 0.5)
        )
    ],
    "Llama-2-7B, 1 трлн токенов: сколько стоит невнимание к MFU",
)

# %% tags=["remove-cell"]
prose(
    mfu_value=percent(mfu, 0),
    mfu_hfu=percent(recomputed, 0),
    mfu_loss=short(
        budget.training_time(llama2, tokens, h100, gpus=64, mfu=0.2, price=price).cost
        - budget.training_time(
            llama2, tokens, h100, gpus=64, mfu=0.45, price=price
        ).cost
    ),
)

# %% [markdown]
# Если при таком обучении включён полный чекпоинтинг, карта занята на {glue:text}`mfu_hfu`, но полезных из
# них — {glue:text}`mfu_value`. Первое число называют HFU: сравнивать обучения по нему нельзя, пересчёт его
# завышает. Разница между MFU 20 % и 45 % на этом обучении — {glue:text}`mfu_loss` долларов: столько стоит
# плохо настроенный конвейер.
#
# ### Смесь экспертов
#
# {term}`Смесь экспертов <смесь экспертов>` хранит $E$ полносвязных блоков в каждом слое, а токен проходит
# через $k$ из них. Внимание у слоя по-прежнему одно. У такой модели два числа параметров: сколько она хранит
# и через сколько проходит один токен.
#
# ### Упражнение 8. Все и активные параметры
#
# Напишите `moe_params(L, attention, expert, E, k)`: пару чисел — все параметры слоёв и активные, те, через
# которые проходит один токен. `attention` — параметров внимания в слое, `expert` — параметров одного
# эксперта. Словарь, нормы и маршрутизатор не в счёт.


# %% tags=["exercise"]
def moe_params(L, attention, expert, E, k):
    """Параметры смеси экспертов: (все, активные)."""
    return ..., ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Это два похожих счёта одного слоя. Чем они отличаются?
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/moe-active")`.
#
# </details>

# %% tags=["solution"]
if "moe_params" not in globals():  # ваш ответ остаётся на месте

    def moe_params(L, attention, expert, E, k):
        """Параметры смеси экспертов: (все, активные)."""
        total = L * (attention + E * expert)
        active = L * (attention + k * expert)
        return total, active


# %% tags=["check"]
check("9/moe-active", moe_params)

# %% [markdown]
# ### Два числа параметров
#
# Возьмём 24 слоя, внимание по 20 млн параметров, 8 экспертов по 60 млн, на токен — 2. Сначала на пальцах.

# %%
layers, attention, expert, E, k = 24, 20e6, 60e6, 8, 2
total = layers * (attention + E * expert)
active = layers * (attention + k * expert)
print("всего:    ", short(total))
print("активных: ", short(active))
print("отношение:", decimal(total / active, 2))

# Та же модель, записанная геометрией: 2DNH + 2DKH = 20 млн, 3DF = 60 млн.
geometry = {
    "V": 32_000,
    "D": 2000,
    "L": layers,
    "N": 40,
    "K": 10,
    "H": 100,
    "F": 10_000,
}
moe = Spec(**geometry, experts=E, experts_per_token=k)
account = budget.parameter_breakdown(moe)
assert account["attention"] + account["ffn"] == total

# %% [markdown]
# ### Упражнение 9. Память и работа
#
# Два числа параметров — два разных счёта. Следующему токену могут понадобиться другие эксперты, чем этому, но
# считает этот токен только через своих. Напишите `moe_costs(total_params, active_params, bytes_per_param)`:
# пару — **байты** весов и **FLOPs** обучения на токен по правилу 6N.


# %% tags=["exercise"]
def moe_costs(total_params, active_params, bytes_per_param):
    """Цена смеси экспертов: (байты весов, FLOPs обучения на токен)."""
    return ..., ...


# %% [markdown]
# <details class="nanolm-answer"><summary>С чего начать</summary>
#
# Что лежит в памяти, пока токен считается? А какие матрицы на него умножаются?
#
# Ещё подробнее — кнопка «Подсказка», в Jupyter `hint("9/moe-costs")`.
#
# </details>

# %% tags=["solution"]
if "moe_costs" not in globals():  # ваш ответ остаётся на месте

    def moe_costs(total_params, active_params, bytes_per_param):
        """Цена смеси экспертов: (байты весов, FLOPs обучения на токен)."""
        return total_params * bytes_per_param, 6 * active_params


# %% tags=["check"]
check("9/moe-costs", moe_costs)

# %% [markdown]
# ### Память — по всем, работа — по активным
#
# Путать эти два числа нельзя: **память считают по полному, FLOPs — по активному**.

# %% tags=["hide-input"]
mixtral = preset("mixtral-8x7b")
mix = budget.parameter_breakdown(mixtral)
table(
    ["модель", "всего", "активных", "отношение", "веса, ГБ", "состояния, ГБ", "FLOPs на токен"],
    [
        ("24 слоя, 8 × 60 млн", short(total), short(active), total / active, number(2 * total / GB, 0),
         number(16 * total / GB, 0), scientific(6 * active, 1)),
        ("Mixtral-8x7B", short(mix.total), short(mix.active), mix.total / mix.active, number(2 * mix.total / GB, 0),
         number(16 * mix.total / GB, 0), scientific(6 * mix.active, 1)),
    ],
    "Память — по полному числу (веса bf16, 16 байт состояний), работа — по активному (6N)",
)  # fmt: skip

# %% tags=["hide-input"]
mistake_table(
    [
        ("FLOPs смеси по полному числу", 6 * total / 1e9, 6 * active / 1e9),
        ("память смеси по активному числу", 2 * active / GB, 2 * total / GB),
    ],
    "Ошибки в смеси экспертов: GFLOPs на токен и ГБ весов",
    show=lambda value: number(value, 1),
)

# %% [markdown]
# Теперь декодирование. Один токен читает двух экспертов, но разные токены пакета выбирают разных, и уже при
# небольшом пакете шаг читает все восемь. Считает же он по-прежнему только двумя на токен. Чтения много,
# вычислений мало — значит, чтобы загрузить вычислители, смеси нужен пакет больше, чем плотной модели того
# же активного размера.

# %% tags=["hide-input"]
dense = moe.replace(
    experts=0, experts_per_token=0, F=k * moe.F
)  # плотный двойник: те же активные параметры
context = 1  # почти без кеша: сравниваем веса
critical = {
    "плотный двойник": budget.critical_batch(dense, context, h100),
    "смесь экспертов": budget.critical_batch(moe, context, h100),
}
moe_batches = sorted([*(2**power for power in range(13)), *critical.values()])


def step_ms(spec, b):
    """Время шага в миллисекундах."""
    return 1000 * budget.decode_step_time(spec, b, context, h100).seconds


lines(
    {
        "смесь, 8 × 60 млн": [(b, step_ms(moe, b)) for b in moe_batches],
        "плотный двойник": [(b, step_ms(dense, b)) for b in moe_batches],
    },
    name="moe-critical-batch",
    title="Критический пакет: где чтение уступает вычислениям",
    x="последовательностей в пакете B",
    y="мс на шаг",
    log="xy",
    x_ticks={4**power: number(4**power) for power in range(7)},
    y_ticks={value: number(value, 0) for value in (1, 2, 4, 8, 16, 32)},
    points={
        f"B = {number(critical['смесь экспертов'])}": (
            critical["смесь экспертов"],
            step_ms(moe, critical["смесь экспертов"]),
        ),
        f"B = {number(critical['плотный двойник'])}": (
            critical["плотный двойник"],
            step_ms(dense, critical["плотный двойник"]),
            "se",
        ),
    },
    alt="Время шага обеих моделей сначала постоянно, потом растёт с пакетом. Плотная упирается в вычисления при "
    f"пакете {number(critical['плотный двойник'])}, смесь — при {number(critical['смесь экспертов'])}.",
    caption="H100, bfloat16, кеш пренебрежимо мал. Подъём кривой смеси слева — пакет начинает читать всех экспертов.",
)

# %% tags=["remove-cell"]
prose(
    moe_total=short(total),
    moe_active=short(active),
    moe_ratio=decimal(total / active, 1),
    moe_critical=number(critical["смесь экспертов"]),
    moe_dense=number(critical["плотный двойник"]),
    moe_critical_ratio=decimal(
        critical["смесь экспертов"] / critical["плотный двойник"], 1
    ),
    moe_weights=gb(2 * total, 0),
    moe_states=gb(16 * total, 0),
    moe_flops=scientific(6 * active, 0),
    moe_mixtral=decimal(mix.total / mix.active, 1),
    moe_deepseek=number(671 / 37, 0),
)

# %% [markdown]
# Всего {glue:text}`moe_total`, активных {glue:text}`moe_active`. Веса в bf16 — {glue:text}`moe_weights`,
# состояния обучения — {glue:text}`moe_states`, а работа — {glue:text}`moe_flops` FLOPs на токен, как у
# плотной модели в {glue:text}`moe_ratio` раза меньше. Критический пакет вырос с {glue:text}`moe_dense` до
# {glue:text}`moe_critical`, в {glue:text}`moe_critical_ratio` раза; голые числа обещали
# {glue:text}`moe_ratio`, а разницу съела выходная голова, одинаковая у обеих.
#
# У Mixtral отношение полного к активному — {glue:text}`moe_mixtral`. У DeepSeek-V3 {cite}`deepseekv3` —
# 671 млрд и 37 млрд: {glue:text}`moe_deepseek` к одному. Такую модель выгодно держать лишь там, где есть
# чем заполнить пакет.

# %% tags=["remove-cell"]
prose(
    o_kilo=percent(2**10 / 10**3 - 1),
    o_day=percent(1e5 / 86_400 - 1, 0),
    o_year=percent(1 - 3e7 / (365.25 * 86_400), 0),
)

# %% [markdown]
# :::{admonition} Математика D10 (по желанию). Порядки величин и формула Стирлинга
# :class: note
#
# Прикидка живёт на показателях. Три приёма, которых хватает почти всегда:
#
# - **Складывайте показатели, перемножайте мантиссы.**
#   $7 \cdot 10^9 \times 2 \cdot 10^{12} = 14 \cdot 10^{21}$.
# - **$2^{10} \approx 10^3$.** Ошибка — {glue:text}`o_kilo` на каждые десять показателей; к $2^{30}$
#   набегает та самая разница между ГиБ и ГБ.
# - **Сутки — $10^5$ секунд**, год — $3 \cdot 10^7$. Первое больше правды на {glue:text}`o_day`, второе
#   меньше на {glue:text}`o_year`.
#
# Бывают числа, которые не выписать вовсе, например $n!$ — число порядков, в которых можно прочесть $n$
# документов. Их считают через логарифм:
#
# $$
# \ln n! = n \ln n - n + \tfrac{1}{2}\ln(2\pi n) + O\!\left(\tfrac{1}{n}\right).
# $$
#
# Первые два слагаемых — интеграл $\int_1^n \ln x\,dx$ вместо суммы логарифмов, третье — поправка на его
# ступеньки.
# :::

# %% tags=["hide-input"]
import math


def stirling(n):
    """Десятичный логарифм n! по формуле Стирлинга."""
    return (n * math.log(n) - n + 0.5 * math.log(2 * math.pi * n)) / math.log(10)


table(
    ["n", "цифр в n! точно", "по Стирлингу", "без поправки"],
    [
        (
            number(n),
            math.floor(math.lgamma(n + 1) / math.log(10)) + 1,
            math.floor(stirling(n)) + 1,
            math.floor((n * math.log(n) - n) / math.log(10)) + 1,
        )
        for n in (10, 100, 8192, 1_000_000)
    ],
    "Сколько цифр в факториале",
)

# %%
assert abs(stirling(8192) - math.lgamma(8193) / math.log(10)) < 1e-4

# %% [markdown]
# ## Вернёмся к догадкам

# %% tags=["hide-input"]
table(
    ["вопрос", "ответ"],
    [
        (
            "Llama-3-8B по правилу и на самом деле",
            f"{short(rule(V, D, L))} и {short(exact.total)}",
        ),
        ("состояния модели 7B", f"{gb(seven, 0)}, или {gib(seven, 1)}"),
        (
            "диалогов по 8192 токена, чей кеш весит как модель",
            f"около {number(equal[8192], 0)}",
        ),
    ],
)

# %% [markdown]
# Чаще всего промахиваются в третьем: кеш кажется мелочью рядом с весами, а это десяток с половиной
# разговоров.
#
# ## Сделайте сами
#
# Девять упражнений — готовые части калькулятора. Соберите его: от геометрии до вердикта «помещается или нет».
# Требования простые.
#
# - Параметры по компонентам; для Llama-3-8B сумма сходится до единицы.
# - FLOPs на токен с отдельными строками головы и оценок внимания; соглашение о маске названо.
# - Память обучения: 16 байт состояний, активации, логиты. Память вывода: веса и кеш.
# - Единицы названы, ГБ не спутаны с ГиБ.
#
# Сверяйтесь со счётом: `python -m nanolm.budget --preset llama-3-8b` печатает все числа, `--json` — их же
# для программы, а метод `explain()` покажет строку, на которой вы разошлись. Потом измените в своём коде
# одно число из таблиц ошибок и убедитесь, что ваша проверка это заметит.
#
# ## Что теперь можно показать
#
# - Вывод $P \approx 2VD + 12LD^2$ на доске и рассказ о том, откуда берётся разница между
#   {glue:text}`p_rule` и {glue:text}`p_exact`.
# - Оценку времени и цены обучения за пять минут, с названным MFU.
# - Размер кеша и пакет, при котором он равен весам.
# - Полное и активное число параметров смеси — и что считают по каждому.
# - Калькулятор, который сходится со счётом до единицы, и его прогноз памяти, проверенный измерением.
# - Ответ на вопрос собеседования с числами.
#
# ## Словарь
#
# {term}`параметры` · {term}`эмбеддинг` · {term}`GQA` · {term}`SwiGLU` · {term}`RoPE` · {term}`FLOPs` ·
# {term}`FLOP/s` · {term}`прямой проход` · {term}`обратный проход` · {term}`градиенты` ·
# {term}`состояние оптимизатора` · {term}`активации` · {term}`чекпоинтинг` · {term}`bfloat16` ·
# {term}`кеш KV` · {term}`MFU` · {term}`смешанная точность` · {term}`шардирование` · {term}`декодирование` ·
# {term}`рулайн` · {term}`смесь экспертов` · {term}`ГиБ` · {term}`ГБ`
#
# ## Что читать
#
# - {cite:t}`kaplan2020` — откуда взялось $6ND$; {cite:t}`hoffmann2022` — сколько токенов давать модели.
# - {cite:t}`bahdanau2022` — вывод шестёрки по операциям.
# - {cite:t}`shazeer2020` — SwiGLU и его ширина; {cite:t}`ainslie2023` — GQA.
# - {cite:t}`korthikanti2022` — точный счёт активаций и выборочный чекпоинтинг.
# - {cite:t}`chowdhery2022` — определение MFU; {cite:t}`pope2022` — из чего складывается шаг декодирования.
# - {cite:t}`deepseekv3` — смесь экспертов в пределе.
#
# ## Дальше
#
# Здесь шаги даны в одном счёте. Лабораторные 7.1–7.4 проходят тот же путь по одному: сравнить модели
# разного размера, оценить FLOPs, упереться в память и посчитать её. За пределами курса ждут bfloat16
# подробно и накопление градиентов.

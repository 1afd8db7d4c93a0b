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
# # Соглашения
#
# Два честных калькулятора дают разные числа, и оба правы: они отвечают на разные вопросы. На этой странице один
# вопрос задан при каждом соглашении, ответы стоят рядом, а под таблицей сказано, откуда берётся отношение.
#
# Правило для всех разделов одно: **число без названного соглашения — ещё не ответ**. В `nanolm` соглашение — это
# аргумент с именем (`attention=`, `kv=`, `recipe=`, `implementation=`), и молча оно не меняется.
#
# Буквы — на странице [обозначений](notation.md). Что бывает, когда соглашения путают, показывает
# «[Галерея ошибок](mistakes.py)».

# %%
from nanolm.budget import (
    decode_step_time,
    flops_per_token,
    hardware_flops_per_token,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.figures import prose, table
from nanolm.hardware import gpu
from nanolm.units import GB, GIB, MIB, decimal, gb, gib, number, percent, short
from nanolm.zoo import preset

llama = preset("llama-3-8b")


def giga(flops):
    return decimal(flops / 1e9, 2)


def times(value, base):
    return decimal(value / base, 3)


def compare(answers, show, unit):
    """Ответы при разных соглашениях и их отношение к первому."""
    base = next(iter(answers.values()))
    rows = [(name, show(value), times(value, base)) for name, value in answers.items()]
    return table(["соглашение", unit, "к первому"], rows)


# %% [markdown]
# ## Что такое N в правиле 6N
#
# **Вопрос.** Сколько FLOPs стоит токен обучения по правилу $6N$, без внимания?
#
# Правило выведено для матриц, на которые умножают. Эмбеддинг — таблица, из неё выбирают строку. Голова — матрица,
# на неё умножают, но в статьях о законах масштабирования её часто выносят за скобки вместе с эмбеддингом.
# Отсюда три разных N {cite}`kaplan2020,hoffmann2022`.


# %%
def six_n(spec):
    parameters = parameter_breakdown(spec)
    head = spec.V * spec.D
    products = flops_per_token(spec)
    return {
        "все параметры": 6 * parameters.total,
        "без эмбеддинга, с головой": 6 * (parameters.non_embedding + head),
        "без эмбеддинга и без головы": 6 * parameters.non_embedding,
        "только произведения (nanolm)": products.total - products["scores"],
    }


gpt2 = preset("gpt2")
large, small = six_n(llama), six_n(gpt2)
rows = []
for name in large:
    row = [name]
    for answers in (large, small):
        row += [giga(answers[name]), times(answers[name], answers["все параметры"])]
    rows.append(row)
table(
    ["что в N", "Llama 3 8B, GFLOPs", "к первому", "GPT-2 small, GFLOPs", "к первому"],
    rows,
)

# %% tags=["remove-cell"]
with_head, bare = "без эмбеддинга, с головой", "без эмбеддинга и без головы"
assert small["все параметры"] - small[with_head] == 6 * 1024 * 768  # только позиции
assert large["все параметры"] - large[with_head] == 6 * llama.V * llama.D
prose(
    n_large=percent(1 - large[bare] / large["все параметры"], 0),
    n_small=percent(1 - small[bare] / small["все параметры"], 0),
)

# %% [markdown]
# У большой модели разброс — {glue:text}`n_large`, у маленькой — {glue:text}`n_small`: таблица словаря у неё
# сравнима со слоями. У GPT-2 «все параметры» и «с головой» почти совпадают, хотя считают разное: голова связана
# с эмбеддингом и входит в сумму один раз, разница — только позиции. Последняя строка меньше второй на нормы и
# смещения: они в параметрах есть, а произведений не делают.
#
# **Что называть.** Входят ли эмбеддинг и голова. `parameter_breakdown(spec).non_embedding` — без обоих.

# %% [markdown]
# ## Коэффициент внимания: 12, 7 или 6
#
# **Вопрос.** Сколько FLOPs на токен тратит внимание при обучении?
#
# Оценки и смесь значений — два произведения; в прямом проходе они стоят $4\,LNHS$ на токен, с обратным — втрое
# больше: $12\,LNHS$. Но причинная маска оставляет половину пар, а слитое ядро в обратном проходе считает оценки
# ещё раз. Об этом спорили в [pytorch/torchtitan#280](https://github.com/pytorch/torchtitan/pull/280): с
# двенадцатью у быстрого ядра получается {term}`MFU` больше ста процентов.

# %%
S = 8192
mistral = preset("mistral-7b-v0.1")  # окно 4096 в каждом слое


def attention(spec):
    causal = hardware_flops_per_token(spec, S, kernel="fused", attention="causal")
    return {
        "12: полный квадрат": flops_per_token(spec, S)["scores"],
        "квадрат в пределах окна": flops_per_token(spec, S, attention="windowed")["scores"],
        "6: под причинной маской": flops_per_token(spec, S, attention="causal")["scores"],
        "7: то же и пересчёт оценок": causal["scores"],
    }


dense, windowed = attention(llama), attention(mistral)
rows = []
for name in dense:
    row = [name]
    for spec, answers in ((llama, dense), (mistral, windowed)):
        unit = spec.L * spec.N * spec.H * S
        row += [giga(answers[name]), decimal(answers[name] / unit, 2)]
    rows.append(row)
table(
    ["соглашение", "Llama 3 8B, GFLOPs", "× LNHS", "Mistral 7B, GFLOPs", "× LNHS"],
    rows,
)

# %% tags=["remove-cell"]
twelve, six, seven = (dense[name] for name in list(dense)[:1] + list(dense)[2:])
assert twelve == 12 * llama.L * llama.N * llama.H * S
assert abs(twelve / six - 2) < 0.001
assert abs(seven / six - 7 / 6) < 1e-9
assert windowed["квадрат в пределах окна"] * 2 == windowed["12: полный квадрат"]
prose(
    att_share=percent(twelve / flops_per_token(llama, S).total, 0),
    att_causal=percent(six / flops_per_token(llama, S, attention="causal").total, 0),
)

# %% [markdown]
# Половина здесь чуть больше половины: пар под маской $S(S+1)/2$, диагональ входит целиком. У модели с окном
# контекст 8192 вдвое длиннее окна, поэтому квадрат урезан вдвое ещё до маски, а маска режет меньше: токенов с
# неполным окном только половина. У Llama 3 8B внимание — это {glue:text}`att_share` всех FLOPs по полному
# квадрату и {glue:text}`att_causal` под маской; на этом же разойдутся две {term}`MFU`.
#
# **Что называть.** «full», «windowed» или «causal». Семёрка — уже не полезная работа, а выполненная.

# %% [markdown]
# ## Сколько байтов на параметр: 12, 16, 18, 20
#
# **Вопрос.** Сколько байтов состояния держит AdamW на один параметр?
#
# Тот же вопрос задавали в [Azure/MS-AMP#173](https://github.com/Azure/MS-AMP/issues/173),
# [NVIDIA/Megatron-LM#654](https://github.com/NVIDIA/Megatron-LM/issues/654) и
# [huggingface/accelerate#2659](https://github.com/huggingface/accelerate/issues/2659). Верны все ответы: различается,
# что хранится.

# %%
recipes = {  # вес, градиент, fp32-копия веса, два момента, fp32-градиент
    "8: всё в bf16": (2, 2, 0, 2 + 2, 0),
    "12: fp32, градиент не копится": (4, 0, 0, 4 + 4, 0),
    "16: fp32": (4, 4, 0, 4 + 4, 0),
    "16: смешанная точность": (2, 2, 4, 4 + 4, 0),
    "18: градиент копится в fp32": (2, 0, 4, 4 + 4, 4),
    "20: оба градиента": (2, 2, 4, 4 + 4, 4),
}
P = parameter_breakdown(llama).total
rows = []
for name, parts in recipes.items():
    size = sum(parts) * P
    rows.append((name, *parts, decimal(size / GB, 1), decimal(size / GIB, 1)))
where = ["вес", "градиент", "копия", "моменты", "fp32-градиент"]
table(["соглашение", *where, "Llama 3 8B, ГБ", "ГиБ"], rows)


# %% tags=["remove-cell"]
def states(recipe):
    account = training_memory(llama, recipe=recipe)
    parts = ("weights", "master_weights", "gradients", "optimizer")
    return sum(account[name] for name in parts)


for recipe, name in (
    ("bf16", "8: всё в bf16"),
    ("fp32", "16: fp32"),
    ("mixed", "16: смешанная точность"),
):
    assert states(recipe) == sum(recipes[name]) * P
for name, parts in recipes.items():
    assert int(name.split(":")[0]) == sum(parts)
assert states("autocast") == states("fp32")
prose(
    b_gap=gb(2 * P, 0),
)

# %% [markdown]
# Смешанная точность не уменьшает состояние: 16 байт и там и тут, только разложены иначе. Она экономит
# {term}`активации` и время. Восемнадцать — это Megatron-LM: градиент сразу копится в fp32, и двухбайтового нет.
# Двадцать — оба градиента, так считают для Megatron-Turing 530B. Двенадцать выходит, если градиент применяют
# сразу и не хранят. Каждые два байта для модели 8B — это {glue:text}`b_gap`.
#
# **Что называть.** Пять слагаемых, а не сумму. У `nanolm` это `recipe=`: «mixed», «fp32», «bf16», «autocast».

# %% [markdown]
# ## ГБ и ГиБ
#
# **Вопрос.** Сколько занимают веса Llama 3 8B в bf16?

# %%
weights = 2 * P
cards = {key: gpu(key) for key in ("rtx-4090", "a100-80", "h100-sxm")}
sizes = {"веса Llama 3 8B, bf16": weights}
for card in cards.values():
    sizes[f"память {card.title}"] = card.memory_bytes
table(
    ["что", "ГБ (10⁹)", "ГиБ (2³⁰)", "ГБ к ГиБ"],
    [(name, gb(size), gib(size), times(size / GB, size / GIB)) for name, size in sizes.items()],
)

# %% tags=["remove-cell"]
assert round(weights / GB, 2) == 16.06
assert round(weights / GIB, 2) == 14.96
prose(
    g_gap=percent(GIB / GB - 1),
    g_card=gb(cards["h100-sxm"].memory_bytes, 1),
)

# %% [markdown]
# Отношение постоянно: {glue:text}`g_gap`. Продавцы карт пишут «80 ГБ», а имеют в виду гибибайты: у H100 это
# {glue:text}`g_card`. Продавцы дисков пишут «ГБ» и имеют в виду 10⁹. Файл весов на сайте показывают в ГБ,
# `nvidia-smi` — в МиБ. Сравнивать можно только байты.
#
# **Что называть.** Единицу с «и» или без. В `nanolm` внутри байты, а слово появляется при выводе.

# %% [markdown]
# ## Кеш KV: нужно, держат, резервируют
#
# **Вопрос.** Сколько памяти занимает кеш KV одной последовательности из 8192 токенов в bf16?

# %%
names = {
    "theory": "нужно вниманию",
    "transformers": "держит transformers",
    "engine": "резервирует движок без окон",
    "uncompressed": "MLA без сжатия",
}
models = ("llama-3-8b", "mistral-7b-v0.1", "gemma-3-4b", "gpt-oss-20b", "deepseek-v3")
caches = {}
for key in models:
    spec = preset(key)
    caches[key] = {kv: kv_cache_bytes(spec, 1, 8192, kv=kv).total for kv in names}
rows = []
for key, cache in caches.items():
    shown = [decimal(cache[kv] / MIB, 1) for kv in names]
    if not preset(key).kv_rank:
        shown[-1] = "—"  # сжатия нет
    rows.append((key, *shown, times(cache["engine"], cache["theory"])))
table(["модель, МиБ", *names.values(), "движок к нужному"], rows)

# %% tags=["remove-cell"]
oss = preset("gpt-oss-20b")
many = {kv: kv_cache_bytes(oss, 32, 8192, kv=kv).total for kv in ("theory", "engine")}
assert many == {"theory": 6240 * MIB, "engine": 12 * GIB}
assert caches["gpt-oss-20b"]["theory"] == 195 * MIB
assert caches["deepseek-v3"]["theory"] == 549 * MIB
assert len(set(caches["llama-3-8b"].values())) == 1
prose(
    k_theory=gib(many["theory"]),
    k_engine=gib(many["engine"]),
    k_mla=decimal(caches["deepseek-v3"]["uncompressed"] / caches["deepseek-v3"]["theory"], 0),
)

# %% [markdown]
# Без окон первые три столбца равны. Слою с окном нужны последние $W$ токенов; transformers между шагами держит
# $W - 1$, потому что последний приходит с новым запросом; движок, который про окна не знает, отводит место под
# весь контекст. В [alvarobartt/hf-mem#70](https://github.com/alvarobartt/hf-mem/issues/70) спорят о gpt-oss-20b
# при пакете 32: {glue:text}`k_theory` или {glue:text}`k_engine`. Верны оба: первое нужно, второе
# зарезервировано.
#
# У MLA развёрнутые по головам ключи и значения больше сжатых в {glue:text}`k_mla` раз: ради этого сжатие и
# придумано.
#
# **Что называть.** `kv="theory"`, `"transformers"`, `"engine"` или `"uncompressed"`.

# %% [markdown]
# ## NanoLM и transformers: память одного и того же шага
#
# **Вопрос.** Сколько памяти нужно шагу обучения Llama 3.2 1B: пакет 1, контекст 2048, всё в bf16?
#
# Модель одна, FLOPs одни, а autograd хранит то, чего потребовали операции, из которых собран слой.

# %%
one_b, step = preset("llama-3.2-1b"), {"B": 1, "S": 2048, "recipe": "bf16"}
implementations = {
    "NanoLM": {},
    "transformers": {"implementation": "transformers"},
    "transformers 4.57": {"implementation": "transformers-4.57"},
    "то же, ядро eager": {"implementation": "transformers-4.57", "attention": "naive"},
    "LoRA ранга 16": {"implementation": "transformers-4.57", "lora_rank": 16},
    "QLoRA ранга 16": {"implementation": "transformers-4.57", "lora_rank": 16, "weights": "nf4-double"},
}
steps = {name: training_memory(one_b, **step, **options) for name, options in implementations.items()}
states_of = ("weights", "gradients", "optimizer")
rows = []
for name, account in steps.items():
    parts = (
        sum(account[part] for part in states_of),
        account["activations"],
        account["logits"],
        account["workspace"],
        account.total,
    )
    rows.append((name, *(decimal(part / GB, 2) for part in parts), times(account.total, steps["NanoLM"].total)))
table(["реализация, ГБ", "состояние", "активации", "логиты", "буферы пика", "всего", "к первому"], rows)

# %% tags=["remove-cell"]
older, eager = steps["transformers 4.57"], steps["то же, ядро eager"]
assert round(older.total / GB, 2) == 17.51  # столько же показал счётчик CUDA на RTX A6000
assert round(eager.total / GB, 1) == 30.3  # измерено 30,26
assert steps["NanoLM"].total < steps["transformers"].total < older.total < eager.total
assert older.total > steps["LoRA ранга 16"].total > steps["QLoRA ранга 16"].total
logit_bytes = sum(line.value for line in older.details if line.name in ("logits", "log_probabilities"))
gradient_bytes = sum(line.value for line in older.details if line.name == "logit_gradients")
assert logit_bytes + gradient_bytes == 14 * 2048 * one_b.V
prose(
    h_masks=gb(older["activations"] - steps["transformers"]["activations"], 2),
    h_logits=gb(logit_bytes + gradient_bytes, 2),
    h_peft=gb(steps["LoRA ранга 16"].total, 2),
)

# %% [markdown]
# Нормы transformers собраны из мелких операций и хранят вход в fp32 и частное; логиты целы весь шаг, и вместе с
# логарифмами вероятностей и двумя градиентами в fp32 на них уходит 14 байт на логит — здесь {glue:text}`h_logits`.
# Версия 4.57 при обучении всегда строит маску, а с маской слитому ядру нужны ключи и значения, размноженные до N
# голов: ещё {glue:text}`h_masks`. Без слитого ядра вероятности $S \times S$ лежат дважды, в fp32 и в bf16.
#
# LoRA убирает градиенты и состояния матриц, но не активации: замороженная матрица входа не хранит, а softmax, SiLU и
# слитое ядро хранят по-прежнему. Поэтому {glue:text}`h_peft`, а не десятая часть. QLoRA квантует ещё и веса.
#
# Те же запуски на RTX A6000 измерил автор пакета vramcalc 0.1.2: 17,51, 30,26 и
# 10,13 ГБ. Счёт всех девятнадцати его запусков сходится с измеренным точнее полупроцента.
#
# **Что называть.** `implementation="nanolm"`, `"transformers"` или `"transformers-4.57"`, ядро и ранг адаптера.

# %% [markdown]
# ## Смесь экспертов: хранят, считают, читают
#
# **Вопрос.** Сколько параметров у смеси?
#
# Хранят всех экспертов, токен проходит через $k$ из $E$, а шаг генерации читает из памяти тех, кого выбрал хоть один
# токен пакета: в среднем $E\,(1 - (1 - k/E)^B)$.

# %%
mixtures = ("mixtral-8x7b", "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3")
rows = []
for key in mixtures:
    account = parameter_breakdown(preset(key))
    steps = [decode_step_time(preset(key), B, 1, "h100-sxm", "bf16") for B in (1, 16, 256)]
    read = [short(step.weight_bytes / 2) for step in steps]
    counts = [short(account.total), short(account.active)]
    rows.append((key, *counts, *read, times(account.total, account.active)))
read_by = [f"читает шаг, B = {B}" for B in (1, 16, 256)]
table(["модель", "хранят", "проходит токен", *read_by, "хранят к активным"], rows)

# %% tags=["remove-cell"]
deepseek = preset("deepseek-v3")
account = parameter_breakdown(deepseek)
one = decode_step_time(deepseek, 1, 1, "h100-sxm", "bf16").weight_bytes / 2
many = decode_step_time(deepseek, 256, 1, "h100-sxm", "bf16").weight_bytes / 2
lite = parameter_breakdown(preset("deepseek-v2-lite"))
assert account.total == 671_026_404_352
assert account.active == 37_552_282_624
assert one < account.active < many < account.total
assert lite.active == 2_661_150_208
assert lite.active - lite["embedding"] == 2_451_435_008
prose(
    x_with=short(account.active, 4),
    x_without=short(account.active - account["embedding"], 4),
    x_lite=short(lite.active),
    x_lite_without=short(lite.active - lite["embedding"]),
)

# %% [markdown]
# При пакете 1 читают чуть меньше активных: из эмбеддинга нужна одна строка. С ростом пакета чтение подходит ко всем
# параметрам, а работа на токен не меняется.
#
# Есть и второе соглашение, о нём спорят в
# [deepseek-ai/DeepSeek-V2#73](https://github.com/deepseek-ai/DeepSeek-V2/issues/73): считать ли эмбеддинг активным. У
# DeepSeek-V2-Lite выходит {glue:text}`x_lite` или {glue:text}`x_lite_without`, у DeepSeek-V3 — {glue:text}`x_with`
# или {glue:text}`x_without`.
#
# **Что называть.** Память — по всем, FLOPs — по активным, время шага — по прочитанным.

# %% [markdown]
# ## MFU и HFU
#
# **Вопрос.** Какую долю пика использует обучение Llama 3 8B, если карта H100 обрабатывает восемь тысяч токенов в
# секунду?
#
# В числителе {term}`MFU` — полезные FLOPs, у HFU — все выполненные, с пересчётом. Пересчёт греет карту, но модель
# от него не учится быстрее.

# %%
tokens_per_s, peak = 8_000, gpu("h100-sxm").rate("bf16")
runs = {
    "MFU: полезные, полный квадрат": flops_per_token(llama, 8192),
    "MFU: полезные, причинная маска": flops_per_token(llama, 8192, attention="causal"),
    "HFU: и пересчёт слитого ядра": hardware_flops_per_token(llama, 8192),
    "HFU: и полный чекпоинтинг": hardware_flops_per_token(llama, 8192, checkpointing="full"),
}
shares = {name: account.total * tokens_per_s / peak for name, account in runs.items()}
compare(shares, percent, "доля пика")

# %% tags=["remove-cell"]
useful, causal, fused, full = shares.values()
assert causal < useful < fused < full
assert full / useful < 4 / 3  # последнее произведение слоя и голова не повторяются
prose(
    u_full=percent(full / useful - 1, 0),
)

# %% [markdown]
# Одна и та же скорость — четыре доли. Чекпоинтинг прибавил к полезной работе {glue:text}`u_full`, а не треть:
# голова стоит вне слоёв, и последнее произведение слоя повторять незачем.
#
# **Что называть.** Что в числителе, какая маска и какой пик.

# %% [markdown]
# ## Плотный пик и пик с разреженностью
#
# **Вопрос.** Какова та же доля при другом знаменателе?

# %%
useful = flops_per_token(llama, 8192).total * tokens_per_s
compare(
    {
        "плотный пик bf16": useful / peak,
        "пик bf16 с разреженностью 2:4": useful / (2 * peak),
        "плотный пик fp8": useful / gpu("h100-sxm").rate("fp8"),
    },
    percent,
    "доля пика",
)

# %% [markdown]
# В техпаспорте H100 крупно напечатан второй пик: он достижим, если в каждой четвёрке весов два нуля и матрицы
# хранятся в особом виде. Обучение так не работает. Плотный пик fp8 совпадает с ним числом, и это добавляет
# путаницы: формат другой.
#
# **Что называть.** Формат и слово «плотный». В таблице [видеокарт](gpus.md) все скорости плотные.

# %% [markdown]
# ## Активации: сохранённые, все, размноженные
#
# **Вопрос.** Сколько памяти занимают {term}`активации` Llama 3 8B при пакете 8 и контексте 8192 в bf16?

# %%
kinds = {
    "saved": "сохраняет autograd в NanoLM",
    "all": "все тензоры блока, k и v по K головам",
    "expanded": "все тензоры блока, k и v размножены до N",
}
naive = training_memory(llama, 8, 8192, attention="naive", activations="expanded")
cured = training_memory(llama, 8, 8192, checkpointing="full")
memory = {}
for kind, text in kinds.items():
    memory[text] = training_memory(llama, 8, 8192, activations=kind)["activations"]
memory["то же и наивное внимание"] = naive["activations"]
memory["полный чекпоинтинг"] = cured["activations"]
compare(memory, gib, "активации")

# %% tags=["remove-cell"]
saved, everything, expanded, naive, cured = memory.values()
assert everything == 348 * GIB
assert expanded == 384 * GIB
assert naive - expanded == llama.L * 8 * llama.N * 8192**2 * 2
assert cured < saved / 10
prose(
    a_naive=gib(naive - expanded, 0),
)

# %% [markdown]
# Учебный подсчёт берёт каждый промежуточный тензор блока. Настоящий граф держит не всё: что-то вычисляется
# заново из соседей, что-то хранится один раз для двух операций, а что-то, наоборот, лежит в fp32. Какой ответ
# верен, решает измерение: у NanoLM строка «saved» совпадает с autograd до байта. Наивное внимание добавляет
# {glue:text}`a_naive` — по одному квадрату на слой.
#
# **Что называть.** Реализацию. Число активаций без неё — порядок величины.

# %% [markdown]
# ## Памятка
#
# | величина | назовите вместе с ней |
# |---|---|
# | параметры | все или активные; входят ли эмбеддинг и голова |
# | FLOPs на токен | прямой или с обратным; пары внимания; контекст |
# | MFU | полезные или выполненные FLOPs; плотный пик какого формата |
# | память состояний | вес, градиент, копия, моменты — по отдельности |
# | активации | реализация, пакет, контекст, чекпоинтинг |
# | кеш KV | тип данных; нужно, держат или резервируют |
# | байты | ГБ или ГиБ |
# | бит на вес | с масштабами или без |

# %% tags=["remove-cell"]
assert number(P) == "8\u00a0030\u00a0261\u00a0248"

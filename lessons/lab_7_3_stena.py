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
# # Лабораторная 7.3. Упритесь в стену памяти
#
# Дообучим модель в четыре миллиарда параметров на карте с 16 ГБ. Точнее, попробуем: она не загрузится. Мы
# увидим сам отказ — какой тензор попросили, сколько байт ему не хватило — и поймём, почему заморозка весов не
# помогает. Карта для этого не нужна: процессу поставят предел памяти, и дальше всё будет по-настоящему.
#
# :::{admonition} К концу вы сможете
# :class: tip
#
# - предсказать, на каком слое остановится загрузка модели, зная только её геометрию и предел памяти;
# - прочитать сообщение о {term}`нехватке памяти <нехватка памяти>` и найти в нём главное;
# - объяснить, почему даже LoRA не даёт дообучить большую модель и зачем нужны приёмы, сберегающие память.
# :::
#
# - **Время:** 15 минут.
# - **Устройство:** любой процессор. На Linux опыт настоящий; на macOS и Windows предел процессу не поставить,
#   и урок показывает прогноз. С видеокартой CUDA те же ячейки просят память у неё.
# - **Нужно знать:** что такое {term}`параметры`, {term}`градиенты` и {term}`состояние оптимизатора`. Хорошо
#   читать перед смешанной точностью.
# - **Обозначения:** $P$ — число параметров, $b$ — байт на параметр, $L$ — число слоёв. О других буквах —
#   [страница обозначений](../docs/notation.md).
#
# **Задания:** подготовить пары «вопрос — ответ» для дообучения; предсказать слой, на котором кончится память;
# проверить прогноз на семи опытах.

# %% [markdown]
# ## Сначала угадайте
#
# Запишите ответы, потом читайте дальше.
#
# 1. На карте написано 16 ГБ, модель занимает 4 млрд × 4 байта, то есть 16 ГБ. Загрузится?
# 2. LoRA обучает меньше процента параметров. Насколько меньше памяти нужно, чтобы *начать* дообучение?
# 3. Модель всё же загрузилась впритык. Какой тензор ей не дадут следующим?

# %%
from nanolm.budget import inference_memory, parameter_breakdown
from nanolm.exercises.text import check, hint
from nanolm.facts import dialogues, facts
from nanolm.figures import lines, prose, table
from nanolm.hardware import gpu
from nanolm.units import GB, GIB, binary_bytes, decimal, gb, gib, number, percent
from nanolm.wall import MOMENTS, climb, full_training, lora_training, weights
from nanolm.zoo import preset

# %% [markdown]
# `climb` — главный инструмент урока: отдельный процесс просит тензоры по списку, пока ему не откажут. Списки
# составляют `weights`, `full_training` и `lora_training` по геометрии настоящей модели.
#
# ## Данные для дообучения
#
# Начнём как положено — с данных. Модель учат отвечать на вопросы, и каждая пара «вопрос — ответ» оформляется
# как диалог. Чья это реплика, модель узнаёт по меткам: *start of turn* открывает реплику, *end of turn*
# закрывает. У Gemma метки такие:

# %%
SOT, EOT = "<start_of_turn>", "<end_of_turn>"

# %% [markdown]
# ### Упражнение 1. Вопрос как реплика
#
# Напишите `format_question(question, sot, eot)`. Реплика пользователя — это метка начала, роль `user`, новая
# строка, вопрос, метка конца. После неё с новой строки начинается реплика модели: метка начала, роль `model`
# и перевод строки. На этом запрос кончается: остальное допишет модель.


# %% tags=["exercise"]
def format_question(question, sot, eot):
    """Вопрос пользователя и начало ответа модели."""
    return ...  # замените многоточие своей строкой


# %% [markdown]
# Застряли? На странице сайта жмите «Подсказка», в Jupyter запускайте следующую ячейку: с каждым разом подсказка
# подробнее. Решение сложено под ней.

# %%
hint("7.3/format-question")


# %% tags=["solution"]
if "format_question" not in globals():  # ваш ответ, если он есть, остаётся на месте

    def format_question(question, sot, eot):
        """Законченная реплика пользователя и открытая реплика модели."""
        return f"{sot}user\n{question}{eot}\n{sot}model\n"


# %% tags=["check"]
check("7.3/format-question", format_question)

# %% [markdown]
# Вопросы возьмём из тех же фактов, на которых учились модели лабораторной 7.1: страны, валюты, языки и города
# из справочника CLDR.

# %%
known = facts()
prompts, responses = dialogues(known, SOT, EOT)
print(f"пар: {len(prompts)}, вот первая")
print(prompts[0] + responses[0])

# %% [markdown]
# Данные готовы, и весят они меньше мегабайта. Осталась мелочь — загрузить модель.
#
# ## Сколько это в байтах
#
# Возьмём текстовую часть Gemma 3 4B и карту T4, на которой шла исходная лабораторная. Здесь всё решают
# единицы: {term}`ГБ` — это $10^9$ байт, {term}`ГиБ` — $2^{30}$.

# %%
gemma = preset("gemma-3-4b")
P = parameter_breakdown(gemma).total
t4 = gpu("t4")
ROUND = 4 * 10**9  # «4B», как её называют
SHARE = 0.9  # какую долю карты исходная лабораторная отдала распределителю
assert P == 3_880_263_168

# %% tags=["hide-input"]
part = int(SHARE * t4.usable_bytes)
table(
    ["что", "байт", "ГБ", "ГиБ"],
    [
        (name, size, decimal(size / GB, 2), decimal(size / GIB, 2))
        for name, size in (
            ("модель «4B», fp32: 4 млрд · 4", ROUND * 4),
            ("Gemma 3 4B, fp32: P · 4", P * 4),
            ("Gemma 3 4B, bf16: P · 2", P * 2),
            ("T4, как её называют: 16 ГБ", 16 * GB),
            ("T4, сколько видит PyTorch", t4.usable_bytes),
            (f"T4, доля {decimal(SHARE, 1)}", part),
        )
    ],
    "Модель и карта в одних единицах",
)

# %% tags=["remove-cell"]
prose(
    b_round=gib(ROUND * 4),
    b_round_gb=gb(ROUND * 4, 1),
    b_real=gib(P * 4),
    b_card=gib(t4.usable_bytes),
    b_part=gib(part),
    b_share=decimal(SHARE, 1),
    b_spare=gib(t4.usable_bytes - P * 4),
    b_params=number(P),
)

# %% [markdown]
# Круглая модель — {glue:text}`b_round_gb`, и карта — 16 ГБ: на бумаге впритык. Но у карты PyTorch видит
# {glue:text}`b_card`, а {glue:text}`b_round_gb` — это {glue:text}`b_round`. Не помещается.
#
# Настоящая Gemma чуть меньше круглой: {glue:text}`b_params` параметров, {glue:text}`b_real`. Поэтому стен
# здесь две. Исходная лабораторная отдавала распределителю {glue:text}`b_share` карты, {glue:text}`b_part`: с
# таким пределом модель не загрузится. Если отдать всю карту, загрузится, и останется {glue:text}`b_spare`.
# Правда, несколько сотен мебибайт из них съест контекст CUDA.
#
# ### Упражнение 2. Сколько слоёв до стены
#
# Первым загружают эмбеддинг, за ним слои по одному. Напишите `layers_before_wall(cap, embedding, layer)`:
# сколько слоёв загрузится *целиком*, если предел — `cap` байт, эмбеддинг занимает `embedding`, слой — `layer`.


# %% tags=["exercise"]
def layers_before_wall(cap, embedding, layer):
    """Число целиком загруженных слоёв."""
    return ...  # замените многоточие своей формулой


# %%
hint("7.3/layers")


# %% tags=["solution"]
# Ваш ответ, если он есть, остаётся на месте.
if "layers_before_wall" not in globals():

    def layers_before_wall(cap, embedding, layer):
        """Что осталось после эмбеддинга, делится на слой нацело."""
        return max(0, cap - embedding) // layer


# %% tags=["check"]
check("7.3/layers", layers_before_wall)

# %% [markdown]
# Теперь прогноз для настоящей модели. Размеры берутся из того же списка тензоров, который будет просить
# процесс.

# %%
plan = weights(gemma, "fp32")
embedding = plan[0].nbytes
layer = sum(tensor.nbytes for tensor in plan if tensor.name.startswith("layers.0."))
forecast = (part - embedding) // layer

print("эмбеддинг:", binary_bytes(embedding))
print("слой:     ", binary_bytes(layer))
print("ваш прогноз, слоёв:", layers_before_wall(part, embedding, layer))
print(
    f"загрузится слоёв: {forecast} из {gemma.L}, это",
    gib(embedding + forecast * layer),
)

# %% [markdown]
# :::{admonition} Предскажите
# :class: hint
#
# Какой из тензоров следующего слоя не поместится: первый же или какой-то из середины? Слой просит их в таком
# порядке: нормы и внимание, потом три матрицы полносвязного блока.
# :::
#
# ## Опыт первый: доля карты
#
# Процесс получает предел адресного пространства `RLIMIT_AS` — столько, сколько он занимает сам, плюс
# {glue:text}`b_part`. Потом просит тензоры по одному. Отказ никто не перехватывает: процесс погибает, а урок
# читает его последнюю строку.

# %%
first = climb(full_training(gemma, "fp32"), cap=part)
print(first.skipped or first.message)


# %% tags=["hide-input"]
def outcome(name, walk):
    """Строка таблицы: где остановился процесс. Если предел поставить нельзя — где его ждёт прогноз."""
    end = walk.expected if walk.skipped else walk.refused
    got = "только прогноз" if walk.skipped else gib(walk.granted)
    if end is None:
        return name, gib(walk.cap), got, "—", "поместилось", "—"
    return name, gib(walk.cap), got, end.stage, end.name, binary_bytes(end.nbytes)


HEAD = ["опыт", "предел", "получено", "стадия", "на чём отказ", "просили"]
table(HEAD, [outcome("fp32, доля T4", first)], "Первый опыт")

# %%
measured = first.device == "cpu" and not first.skipped
if measured:
    assert (
        first.refused == first.expected
    )  # отказ пришёл ровно там, где его ждал прогноз
    assert round(first.whole_layers / GIB, 2) == 13.05
    assert first.whole_layers == embedding + forecast * layer

# %% tags=["remove-cell"]
stop = first.refused or first.expected
got = first.granted if first.readings else embedding + forecast * layer
prose(
    f_layers=str(forecast),
    f_whole=gib(embedding + forecast * layer),
    f_got=gib(got),
    f_stop=stop.name,
    f_bytes=number(stop.nbytes),
    f_size=binary_bytes(stop.nbytes, 3),
    f_left=binary_bytes(part - got, 3),
    f_resident=f"{number(first.resident / 10**6)} МБ"
    if first.readings
    else "сотни мегабайт",
    f_virtual=gib(first.readings[-1].occupied) if first.readings else gib(got),
)

# %% [markdown]
# Прочитаем сообщение. `DefaultCPUAllocator: can't allocate memory` — отказал распределитель памяти, `you
# tried to allocate` — просили столько-то байт, `Error code 12` — системе нечего дать (ENOMEM). На карте то же
# самое звучит как `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …`, а в XLA —
# `RESOURCE_EXHAUSTED`. Главное во всех трёх — **размер просьбы, которой отказали**: по нему находят тензор.
#
# {glue:text}`f_bytes` байт — это {glue:text}`f_stop`, матрица в {glue:text}`f_size`. Целиком загрузилось
# {glue:text}`f_layers` слоёв, {glue:text}`f_whole`; вместе с начатым слоем — {glue:text}`f_got`. До предела
# оставалось {glue:text}`f_left`.
#
# :::{note}
# Настоящей памяти процесс почти не потратил: {glue:text}`f_resident` при {glue:text}`f_virtual` адресов.
# `torch.empty` лишь резервирует адреса, а страницу система выдаёт при первой записи. Поэтому опыт безопасен:
# ваш компьютер ничего не заметит. У видеокарты такой лени нет — там память занимается сразу.
# :::
#
# ## Опыт второй: карта целиком
#
# Отдадим процессу всё, что видит PyTorch: {glue:text}`b_card`. Сначала ответьте на третий вопрос из начала.

# %%
second = climb(full_training(gemma, "fp32"), cap=t4.usable_bytes)
print(second.skipped or second.message)

# %%
if measured:
    assert second.refused == second.expected
    assert second.granted == P * 4  # загрузилась вся
    assert second.refused.name == "embedding.weight.grad"

# %% tags=["remove-cell"]
stop = second.refused or second.expected
prose(
    s_stop=stop.name,
    s_size=binary_bytes(stop.nbytes, 3),
    s_left=binary_bytes(t4.usable_bytes - P * 4, 3),
)

# %% [markdown]
# Модель загрузилась и погибла на первом же градиенте: {glue:text}`s_stop`, {glue:text}`s_size`, а оставалось
# {glue:text}`s_left`. Первым градиент получает эмбеддинг — у Gemma он же выходная голова, а обратный проход
# идёт с конца.
#
# До градиентов в жизни был бы ещё прямой проход с его {term}`активациями <активации>`. Мы их пропустили
# нарочно: с ними стена только ближе.

# %% tags=["hide-input"]
edge = 470  # веса и первые градиенты
series = {
    "прогноз": [point for point in second.forecast() if point[0] <= edge],
    "предел: вся карта": [(0, second.cap / GIB), (edge, second.cap / GIB)],
    f"предел: {decimal(SHARE, 1)} карты": [
        (0, first.cap / GIB),
        (edge, first.cap / GIB),
    ],
}
deaths = {}
if second.readings:
    series["занято"] = second.curve()
    deaths = {
        "отказ: полносвязный блок слоя 30": first.curve()[-1],
        "отказ: первый градиент": second.curve()[-1],
    }
lines(
    series,
    name="two-walls",
    title="Две стены T4",
    x="тензоров получено",
    y="занято, ГиБ",
    points=deaths,
    alt=(
        f"Память растёт слой за слоем по линии прогноза. С пределом {gib(first.cap)} рост обрывается на "
        f"{gib(got)}, с пределом {gib(second.cap)} загрузка доходит до конца, {gib(P * 4)}, и обрывается на первом "
        "градиенте."
    ),
    caption="Прогноз — накопленная сумма размеров из таблицы операций; занятое — показания системы. Линии сливаются.",
)

# %% [markdown]
# ## Может, точность пониже? Или LoRA?
#
# :::{admonition} Предскажите
# :class: hint
#
# Три способа выкрутиться: хранить всё в bf16; заморозить веса и учить LoRA; заморозить веса, учить LoRA и
# отдать карту целиком. Какой из них доведёт до первого шага оптимизатора?
# :::

# %%
lora = lora_training(gemma, "fp32", rank=16, S=640)  # один текст в 640 токенов
tries = {
    "bf16, доля T4": climb(full_training(gemma, "bf16"), cap=part),
    "LoRA fp32, доля T4": climb(lora, cap=part),
    "LoRA fp32, вся T4": climb(lora, cap=t4.usable_bytes),
}
table(
    HEAD,
    [outcome(name, walk) for name, walk in tries.items()],
    "Три попытки выкрутиться",
)

# %% tags=["remove-cell"]
adapters = [
    tensor
    for tensor in lora
    if ".lora_" in tensor.name and tensor.stage == "адаптеры"
]
adapter_params = sum(tensor.nbytes for tensor in adapters) // 4
half, frozen, whole = tries.values()
prose(
    l_params=number(adapter_params),
    l_share=percent(adapter_params / P, 2),
    l_states=binary_bytes(16 * adapter_params, 3),
    l_same="тот же"
    if (frozen.refused or frozen.expected) == (first.refused or first.expected)
    else "другой",
    l_stop=(whole.refused or whole.expected).stage,
    l_bf16=gib(P * 2),
    l_bf16_states=gib(P * 8),
    l_bf16_stop=(half.refused or half.expected).stage,
)

# %%
if measured:
    assert all(walk.refused == walk.expected for walk in tries.values())
    assert frozen.refused == first.refused  # LoRA погибает на том же тензоре

# %% [markdown]
# - **bf16.** Веса занимают {glue:text}`l_bf16` и загружаются. Дальше нужны градиенты и моменты, в тех же двух
#   байтах каждый: вместе {glue:text}`l_bf16_states`. Отказ — на стадии «{glue:text}`l_bf16_stop`».
# - **LoRA на доле карты.** Обучаемых параметров {glue:text}`l_params`, {glue:text}`l_share`. Но отказ —
#   {glue:text}`l_same`, что и без неё. Замороженный вес не требует градиента и моментов, однако участвует в
#   прямом проходе, а значит, **обязан лежать в памяти**. До обучения дело не дошло.
# - **LoRA на всей карте.** Веса встали, адаптеры со всем своим обучением весят лишь
#   {glue:text}`l_states`. Остановка — «{glue:text}`l_stop`»: прямому проходу негде хранить промежуточное.
#
# LoRA экономит *состояния обучения*. Стена же стоит перед весами, и сдвигает её только то, что уменьшает сами
# веса: 16 бит вместо 32, 8 или 4 бита вместо 16 — или несколько карт.
#
# <details class="nanolm-answer"><summary>Почему же эта модель загрузилась в лабораторной 7.1?</summary>
#
# Там она только отвечала, и хранили её в 16 битах. Выводу не нужны ни градиенты, ни моменты — лишь веса и
# {term}`кеш <кеш ключей и значений>`. Это и есть сберегающие память приёмы, которые работали молча. Счёт — в
# следующей ячейке.
#
# </details>

# %%
served = inference_memory(gemma, B=1, S=100, dtype="bf16")
print("веса и кеш на 100 токенов, bf16:", gib(served.total))
print("помещается в долю T4:", "да" if served.peak < part else "нет")
assert served.peak < part < P * 4

# %% [markdown]
# ## Карта побольше
#
# На карте с 32 ГБ Gemma 3 4B в fp32 загружается. Стена никуда не делась — отодвинулась.

# %%
big_card = gpu("v100-32")  # 32 ГБ
gemma12 = preset("gemma-3-12b")
bigger = {
    "4B fp32, 32 ГБ": climb(full_training(gemma, "fp32"), cap=big_card.usable_bytes),
    "12B fp32, 32 ГБ": climb(
        full_training(gemma12, "fp32"), cap=big_card.usable_bytes
    ),
}
table(HEAD, [outcome(name, walk) for name, walk in bigger.items()], "Карта с 32 ГБ")

# %% tags=["hide-input"]
four, twelve = bigger.values()
loads12 = len(weights(gemma12))
series = {
    "4B: прогноз": four.forecast(),
    "12B: прогноз": [point for point in twelve.forecast() if point[0] <= loads12],
    "предел карты": [(0, four.cap / GIB), (len(four.requests), four.cap / GIB)],
}
for name, walk in (("4B: занято", four), ("12B: занято", twelve)):
    if walk.readings:
        series[name] = walk.curve()
lines(
    series,
    name="bigger-card",
    title="Та же стена на карте с 32 ГБ",
    x="тензоров получено",
    y="занято, ГиБ",
    alt=(
        f"Предел {gib(four.cap)}. Дообучение 4B проходит веса и градиенты и обрывается на стадии «"
        f"{(four.refused or four.expected).stage}»; всего ему нужно {gib(four.asked[-1])}. Загрузка 12B обрывается на "
        f"весах: им нужно {gib(twelve.peak('веса'))}."
    ),
    caption="У 4B за весами идут градиенты, за ними — два момента AdamW на каждый вес. Модель 12B не загрузилась.",
)

# %%
P12 = parameter_breakdown(gemma12).total
assert P12 == 11_766_034_176
assert four.asked[-1] == 16 * P
if measured:
    assert four.refused == four.expected
    assert four.refused.stage == MOMENTS
    assert twelve.refused == twelve.expected
    assert twelve.refused.stage == "веса"

# %% tags=["remove-cell"]
prose(
    g_stage=(four.refused or four.expected).stage,
    g_all=gib(16 * P),
    g_all_gb=gb(16 * P, 0),
    g_two=gib(8 * P),
    g_card=gib(big_card.usable_bytes),
    g_12=gib(4 * P12),
    g_12_round=gib(4 * 12 * 10**9),
    g_title=big_card.title,
)

# %% [markdown]
# - **4B** прошла веса и градиенты, {glue:text}`g_two`, и упёрлась в «{glue:text}`g_stage`». Всего полному
#   дообучению в fp32 нужно {glue:text}`g_all`, около {glue:text}`g_all_gb`: по 16 байт на параметр. Из чего
#   они складываются, разберём в [лабораторной 7.4](lab_7_4_pamyat.py).
# - **12B** повторила историю 4B на T4: одни веса — {glue:text}`g_12` (по круглым 12 млрд вышло бы
#   {glue:text}`g_12_round`), а карта отдаёт {glue:text}`g_card`.
#
# Предел взят у {glue:text}`g_title`. Обычная RTX 4080 сюда не годится: у неё 16 ГБ, а версии с 32 — это
# переделанные карты.
#
# :::{admonition} Запомните
# :class: tip
#
# **До первого шага обучения модель должна загрузиться: $P \cdot b$ байт.** Четыре миллиарда в fp32 — это
# {glue:text}`b_round`, и «16 ГБ» карты их не вмещают. LoRA не трогает это слагаемое.
# :::
#
# ## Все опыты вместе

# %%
everything = {"fp32, доля T4": first, "fp32, вся T4": second, **tries, **bigger}
table(HEAD, [outcome(name, walk) for name, walk in everything.items()], "Семь стен")

# %% [markdown]
# ## Вернёмся к догадкам
#
# 1. Нет, если отдать модели {glue:text}`b_share` карты; впритык — если всю, и только потому, что настоящая
#    модель чуть меньше круглой. Надпись «16 ГБ» не говорит ни о том, ни о другом.
# 2. Почти не меньше: замороженные веса загружают все. LoRA экономит потом, на градиентах и моментах.
# 3. Градиент эмбеддинга, {glue:text}`s_size`: первый в обратном проходе и самый большой.
#
# ## Что вы заметили
#
# <details class="nanolm-answer"><summary>Сначала своими словами, потом откройте</summary>
#
# - Прогноз совпал с отказом до тензора: память обучения — не тайна, а сумма известных форм.
# - Отказывают не когда «память кончилась», а когда *следующая просьба* больше остатка. Поэтому большие
#   тензоры — эмбеддинг и полносвязный блок — гибнут первыми.
# - Каждая следующая карта пропускает модель ровно на одну стадию дальше: веса, градиенты, моменты.
#
# </details>
#
# ## Итоги
#
# Загрузка, градиенты, состояние оптимизатора — три ступени, и каждая может оказаться выше потолка. Заморозка
# весов убирает вторую и третью, но не первую. Первую снижают точность, {term}`шардирование` и модель поменьше.
#
# ## Словарь
#
# {term}`стена памяти` · {term}`нехватка памяти` · {term}`параметры` · {term}`градиенты` ·
# {term}`состояние оптимизатора` · {term}`активации` · {term}`точность` · {term}`bfloat16` ·
# {term}`шардирование` · {term}`ГБ` · {term}`ГиБ`
#
# ## Что читать
#
# - {cite:t}`hu2021` — LoRA: какие веса заморожены и почему узких матриц хватает.
# - {cite:t}`korthikanti2022` — что ещё лежит в памяти, когда веса уже поместились.
#
# ## Дальше
#
# Мы знаем, где стена, но не из чего она сложена. В [лабораторной 7.4](lab_7_4_pamyat.py) разберём память по
# слагаемым и напишем калькулятор.
#
# ---
#
# *По задачам и числам курса AI Research Foundations, модуль 7 «Accelerate Your Model», лабораторная 7.3
# (Google DeepMind и University College London; тексты CC BY 4.0, код Apache 2.0; репозиторий
# google-deepmind/ai-foundations). Читали мы её в русском переводе; замечания о карте с 32 ГБ и модели 12B —
# переводчика, не DeepMind. Это самостоятельная работа: текст, код и рисунки написаны заново. Факты — CLDR,
# Unicode, Inc., через Babel. Подробнее — на странице «[Источники и лицензии](../docs/sources.md)».*

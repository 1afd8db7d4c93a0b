"""Настройка сайта: что считается страницей, чем она собирается и как выглядит.

Папка исходников — корень репозитория: уроки лежат в `lessons`, а импортировать им нужно `nanolm`. Поэтому
страницы перечислены явно, иначе суффикс `.py` сделал бы страницей каждый модуль.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
# Ядро уроков обязано быть из окружения сборки, а не из домашней папки.
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

project = "NanoLM"
author = "авторы NanoLM"
copyright = "2026, авторы NanoLM"  # noqa: A001
language = "ru"
html_title = "NanoLM"

include_patterns = [
    "index.md", "docs/**.md", "docs/conventions.py", "docs/mistakes.py", "lessons/lab_*.py", "lessons/week_*.py",
]  # fmt: skip
exclude_patterns = ["docs/_ext", "docs/_static", "docs/_templates", "**/.ipynb_checkpoints"]
extensions = [
    "nanolm_site",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
]
templates_path = ["docs/_templates"]
locale_dirs = ["docs/locale"]
gettext_auto_build = True

# Язык. Кавычки в тексте ставит автор; «умные» портят значения по умолчанию в сигнатурах.
smartquotes = False
html_search_language = "ru"

# Вид
html_theme = "furo"
html_static_path = ["docs/_static"]
html_css_files = ["nanolm.css"]
html_favicon = "docs/_static/icon.svg"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "github-dark"
html_permalinks_icon = "#"
copybutton_selector = "div.cell_input div.highlight pre, div.highlight-bash pre, div.highlight-python pre"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False

# Разметка. Формулы набирает nanolm_site.maths.
html_math_renderer = "katex"
myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "tasklist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
myst_links_external_new_tab = False

# Выполнение уроков
nb_custom_formats = {".py": ["nanolm_site.lessons.read", {}]}
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "jupyter_cache")
nb_execution_timeout = 600
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Показать код"
nb_code_prompt_hide = "Скрыть код"
nb_number_source_lines = False
# О неудаче выполнения сообщает наше расширение: по-русски, одной строкой, с именем ячейки.
suppress_warnings = ["mystnb.exec"]

# Справочник: torch для него не нужен, docstring написан без разметки ролей.
autodoc_mock_imports = ["torch", "safetensors", "tokenizers", "tqdm", "matplotlib", "numpy", "IPython"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
# Значения констант — словари на полстраницы; что в них, сказано словами.
autodoc_default_options = {"no-value": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "code"
# Стандартная библиотека и torch описаны на своих сайтах, а указатели чужих сайтов требуют сети.
nitpick_ignore_regex = [
    ("py:.*", r"(?!nanolm\b).*"),
]

# Литература
bibtex_bibfiles = ["docs/references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

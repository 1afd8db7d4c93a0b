// Сортировка и поиск в таблицах-каталогах. Без скрипта таблица читается целиком; он только добавляет кнопки.
"use strict";

(() => {
  const collator = new Intl.Collator("ru", { numeric: true });
  const plain = (text) => text.toLowerCase().replaceAll("ё", "е").replaceAll("\u00a0", " ");

  // Пустая ячейка при любом порядке стоит в конце: прочерк не меньше и не больше числа.
  function compare(a, b, column, numeric, sign) {
    const [left, right] = [a.cells[column], b.cells[column]];
    if (!numeric) return sign * collator.compare(left.textContent, right.textContent);
    const [x, y] = [left.dataset.value, right.dataset.value];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return sign * (x - y);
  }

  function sort(table, heading, say) {
    const numeric = heading.classList.contains("number");
    const first = numeric ? "descending" : "ascending";
    const other = numeric ? "ascending" : "descending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const body = table.tBodies[0];
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].sort((a, b) => compare(a, b, heading.cellIndex, numeric, sign));
    body.append(...rows);
    say(`Порядок: ${heading.textContent}, по ${order === "ascending" ? "возрастанию" : "убыванию"}`);
  }

  function filter(table, words, say) {
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = plain(row.textContent);
      row.hidden = !words.every((word) => text.includes(word));
    }
    say(`Показано ${rows.filter((row) => !row.hidden).length} из ${rows.length}`);
  }

  function searchField(catalog, table, say) {
    const label = document.createElement("label");
    label.className = "catalog-find";
    const input = document.createElement("input");
    input.type = "search";
    input.autocomplete = "off";
    label.append(`${catalog.dataset.find}: `, input);
    input.addEventListener("input", () => filter(table, plain(input.value).split(/\s+/).filter(Boolean), say));
    return label;
  }

  function enhance(catalog) {
    const table = catalog.querySelector("table");
    const status = document.createElement("p");
    status.className = "catalog-status";
    status.setAttribute("role", "status");
    const say = (text) => { status.textContent = text; };
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading, say));
      heading.append(button);
    }
    const bar = document.createElement("div");
    bar.className = "catalog-bar";
    bar.append(searchField(catalog, table, say), status);
    catalog.prepend(bar);
    say(`Показано ${table.tBodies[0].rows.length} из ${table.tBodies[0].rows.length}`);
  }

  for (const catalog of document.querySelectorAll(".nanolm-catalog")) enhance(catalog);
})();

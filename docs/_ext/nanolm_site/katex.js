// Набирает формулы для сборки сайта: строка JSON на входе — строка JSON на выходе.
// Живёт, пока открыт вход, поэтому не переживает сборку, даже если её прервали.
"use strict";
const katex = require(process.argv[2]);
const lines = require("node:readline").createInterface({ input: process.stdin });

lines.on("line", (line) => {
  const { latex, display } = JSON.parse(line);
  let answer;
  try {
    // Кириллица в формулах намеренная: предупреждать о ней незачем.
    answer = { html: katex.renderToString(latex, { displayMode: display, strict: false, throwOnError: true }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});

// Собрать скрипты живых страниц: esbuild делит их на части и называет по содержимому.
//
//   node build.mjs ПАПКА '{"pyodide": "…", "archive": "…"}'
//
// Печатает имена получившихся файлов. Запускает его расширение сайта.

import { dirname, basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createRequire } from "node:module";

const here = dirname(fileURLToPath(import.meta.url));
const { build } = createRequire(join(here, "..", "..", "package.json"))("esbuild");
const [target, known] = process.argv.slice(2);

const common = { bundle: true, minify: true, target: "es2022", outdir: target, logLevel: "error", charset: "utf8" };
const parts = await build({
  ...common,
  entryPoints: [join(here, "app.js"), join(here, "worker.js")],
  format: "esm",
  splitting: true,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  metafile: true,
});
const files = JSON.parse(known);
for (const [path, { entryPoint }] of Object.entries(parts.metafile.outputs)) {
  if (entryPoint?.endsWith("/app.js")) files.app = basename(path);
  if (entryPoint?.endsWith("/worker.js")) files.worker = basename(path);
}
// Имя первого скрипта постоянно: страницы, которые эта сборка не переписала, найдут его под ним же.
await build({ ...common, entryPoints: [join(here, "main.js")], format: "iife", define: { __FILES__: JSON.stringify(files) } });
console.log(JSON.stringify(files));

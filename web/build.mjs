// One script and one style sheet, and the hashes by which a report's Content-Security-Policy admits
// exactly these two.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

// Every report contains the bundle, so it must contain uPlot's licence.
const licence = `/*! uPlot\n${readFileSync("node_modules/uplot/LICENSE", "utf8").trim()}\n*/`;

await build({
  entryPoints: { report: "src/report.ts" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: licence, css: licence },
  logLevel: "warning",
});

const hash = (file) =>
  `sha256-${createHash("sha256").update(readFileSync(file)).digest("base64")}`;
for (const file of ["dist/report.js", "dist/report.css"]) {
  // The closing tag inside a script or style would end it early in the page.
  if (/<\/(script|style)|<!--/i.test(readFileSync(file, "utf8"))) {
    throw new Error(`${file} holds a tag that would break the page it is put into`);
  }
  writeFileSync(`${file}.hash`, hash(file));
}

"use strict";

const root = document.documentElement;
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const one = (selector, from = document) => from.querySelector(selector);

// Light or dark: as the system says until the button is used, then as it says, for as long as the page is open.
const button = one("#theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
function nameTheme() {
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Use light colors" : "Use dark colors");
}
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
system.addEventListener("change", nameTheme);
nameTheme();

// Tables: sort by a column, show some rows, show one of three figures first.
const tools = one("#tools");
const tables = all(".results");
const inOrder = new Map(tables.map((table) => [table, all("tbody tr", table)]));

const isGroup = (row) => row.classList.contains("group");

// A title may stand in place of several heads.
function cellAt(row, column) {
  return [...row.children].find((cell) => (column -= cell.colSpan) < 0);
}

function keyOf(row, column) {
  const cell = cellAt(row, column);
  if (cell.tagName === "TH") return cell.firstChild?.textContent ?? "";
  const value = parseFloat(cell.dataset[root.dataset.show]);
  return Number.isNaN(value) ? null : value;
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

function sort(table) {
  const heads = all("thead th", table);
  const column = heads.findIndex((head) => head.ariaSort !== "none");
  const rows = inOrder.get(table);
  const body = one("tbody", table);
  table.toggleAttribute("data-sorted", column >= 0);
  if (column < 0) return body.append(...rows);
  const sign = heads[column].ariaSort === "ascending" ? 1 : -1;
  const keyed = rows.filter((row) => !isGroup(row)).map((row) => [keyOf(row, column), row]);
  // What has no figure comes last, whichever way.
  keyed.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * compare(a, b)));
  body.append(...keyed.map(([, row]) => row));
}

// Figures: best first; texts: from A; the third click brings the order of the page back.
const NEXT = {
  figure: { none: "descending", descending: "ascending", ascending: "none" },
  head: { none: "ascending", ascending: "descending", descending: "none" },
};
function turn(table, head) {
  const next = NEXT[head.className][head.ariaSort];
  all("thead th", table).forEach((other) => (other.ariaSort = "none"));
  head.ariaSort = next;
  sort(table);
}

function choose() {
  const pressed = all('.chip[aria-pressed="true"]', tools);
  const blocks = pressed.flatMap((chip) => chip.dataset.block ?? []);
  const off = pressed.flatMap((chip) => chip.dataset.off ?? []);
  const words = one("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row) => {
    const text = [...all("th", row).map((head) => head.textContent), row.dataset.block].join(" ").toLowerCase();
    const inBlock = !blocks.length || blocks.includes(row.dataset.block);
    const isOff = !off.length || off.some((kind) => one(`.${kind}`, row));
    return inBlock && isOff && words.every((word) => text.includes(word));
  };
  let shown = 0;
  let total = 0;
  for (const [table, rows] of inOrder) {
    const chosen = rows.filter((row) => !isGroup(row) && matches(row));
    const blocksShown = new Set(chosen.map((row) => row.dataset.block));
    rows.forEach((row) => (row.hidden = isGroup(row) ? !blocksShown.has(row.textContent) : !chosen.includes(row)));
    // A head that the row above has too need not be read twice.
    const first = (row) => row && row.dataset.block + keyOf(row, 0);
    chosen.forEach((row, place) => row.classList.toggle("again", first(row) === first(chosen[place - 1])));
    const visible = chosen.length;
    total += rows.filter((row) => !isGroup(row)).length;
    table.hidden = !visible;
    one(".empty", table.closest("article")).hidden = visible > 0;
    shown += visible;
  }
  one("#count").textContent = shown === total ? `${total} rows` : `${shown} of ${total} rows`;
}

function show() {
  root.dataset.show = one("input:checked", tools).value;
  tables.forEach(sort);
}

if (tools) {
  tools.hidden = false;
  // What sticks below the tools has to know how tall they are.
  new ResizeObserver(() => root.style.setProperty("--tools", `${tools.offsetHeight}px`)).observe(tools);
  tools.addEventListener("submit", (event) => event.preventDefault());
  one("#filter").addEventListener("input", choose);
  all("input[name=show]", tools).forEach((radio) => radio.addEventListener("change", show));
  for (const chip of all(".chip", tools)) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = chip.ariaPressed !== "true";
      choose();
    });
  }
  for (const table of tables) {
    for (const head of all("thead th", table)) {
      one("button", head).addEventListener("click", () => turn(table, head));
    }
  }
  choose();
}

// Figures: the point nearest to the pointer, or the one that the arrow keys reached, tells its values.
const tip = one("#tip");
const heard = one("#heard");
const REACH = 40;

function hide(ring) {
  tip.hidden = true;
  ring.setAttribute("display", "none");
}

function tell(plot, ring, point) {
  ring.setAttribute("cx", point.x);
  ring.setAttribute("cy", point.y);
  ring.removeAttribute("display");
  tip.textContent = `${point.name}\n${point.told}`;
  tip.hidden = false;
  const at = new DOMPoint(point.x, point.y).matrixTransform(plot.getScreenCTM());
  const width = tip.offsetWidth;
  const left = Math.max(8, Math.min(at.x - width / 2, root.clientWidth - width - 8));
  const above = at.y - tip.offsetHeight - 12;
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${(above > 4 ? above : at.y + 14) + scrollY}px`;
}

function pointsOf(plot) {
  return all(".series", plot).map((series) =>
    JSON.parse(series.dataset.points).map(([x, y, atX, atY]) => ({
      x, y, name: series.dataset.name, told: `${plot.dataset.x}: ${atX}\n${plot.dataset.y}: ${atY}`,
    })),
  ).filter((points) => points.length);
}

function nearest(plot, points, event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
  const distance = (point) => Math.hypot(point.x - at.x, point.y - at.y);
  const best = points.flat().reduce((a, b) => (distance(b) < distance(a) ? b : a));
  return distance(best) < REACH ? best : null;
}

function moved(points, [line, place], key) {
  const along = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: Infinity }[key] ?? place;
  const across = { ArrowDown: line + 1, ArrowUp: line - 1 }[key] ?? line;
  const to = (across + points.length) % points.length;
  return [to, Math.max(0, Math.min(along, points[to].length - 1))];
}

for (const plot of all(".plot")) {
  const points = pointsOf(plot);
  if (!points.length) continue;
  const ring = one(".ring", plot);
  let at = [0, 0];
  const pointed = (event) => {
    const point = nearest(plot, points, event);
    if (point) tell(plot, ring, point);
    else hide(ring);
  };
  const reached = () => {
    const point = points[at[0]][at[1]];
    tell(plot, ring, point);
    heard.textContent = tip.textContent;
  };
  plot.tabIndex = 0;
  plot.addEventListener("pointermove", pointed);
  plot.addEventListener("pointerdown", pointed);
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide(ring));
  plot.addEventListener("focus", () => plot.matches(":focus-visible") && reached());
  plot.addEventListener("blur", () => hide(ring));
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide(ring);
    if (!/^(Arrow|Home$|End$)/.test(event.key)) return;
    event.preventDefault();
    at = moved(points, at, event.key);
    reached();
  });
}

"use strict";
// Adds to a page that can be read without it: values at the pointer, sorting, hiding and the theme.
(() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  root.classList.add("script");

  const make = (name, text, className) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  // Theme: the system's unless chosen; pages opened from a file may have no storage.
  const themes = ["system", "light", "dark"];
  const themeButton = document.getElementById("theme");
  const remember = (theme) => { try { localStorage.setItem("fairlead-theme", theme); } catch { return; } };
  const recall = () => { try { return localStorage.getItem("fairlead-theme"); } catch { return null; } };
  const applyTheme = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    themeButton.textContent = `Theme: ${theme}`;
  };
  let theme = themes.includes(recall()) ? recall() : "system";
  applyTheme(theme);
  themeButton.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    applyTheme(theme);
    remember(theme);
  });

  // Methods shown and hidden, in charts, lists and tables alike.
  const boxes = [...document.querySelectorAll("[data-toggle]")];
  const showMethods = () => {
    const hidden = new Set(boxes.filter((box) => !box.checked).map((box) => box.dataset.toggle));
    for (const element of document.querySelectorAll("[data-method]"))
      element.classList.toggle("off", hidden.has(element.dataset.method));
    for (const charts of document.querySelectorAll("[data-bands]")) {
      const shown = [...charts.querySelectorAll(".method:not(.off)")].map((element) => element.dataset.method);
      charts.classList.toggle("crowded", new Set(shown).size > Number(charts.dataset.bands));
    }
  };
  const light = (method) => {
    root.classList.toggle("dimmed", method !== null);
    for (const element of document.querySelectorAll(".method"))
      element.classList.toggle("lit", element.dataset.method === method);
  };
  for (const box of boxes) {
    box.addEventListener("change", showMethods);
    const label = box.closest("label");
    label.addEventListener("pointerenter", () => light(box.dataset.toggle));
    label.addEventListener("pointerleave", () => light(null));
  }
  for (const button of document.querySelectorAll("[data-toggle-all]"))
    button.addEventListener("click", () => {
      for (const box of boxes) box.checked = button.dataset.toggleAll === "show";
      showMethods();
    });
  // A reload may bring back boxes as they were left.
  showMethods();

  // Tables sorted by the column that is pressed; entries without a value stay last.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? cell.dataset.value : cell.textContent.trim();
  };
  const compare = (first, second) => {
    const [a, b] = [Number(first), Number(second)];
    return Number.isNaN(a) || Number.isNaN(b) ? first.localeCompare(second, undefined, { numeric: true }) : a - b;
  };
  // Python writes infinity as "inf", and text in cells may be "12.5 %".
  const readable = (text) => text.replace(/^(-?)inf$/, "$1Infinity").replace(/^([−+]?[\d.]+) ?[%×]$/, "$1");
  const sortBy = (table, head, column) => {
    const heads = [...table.tHead.rows[0].cells];
    const first = column === 0 ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row, readable(valueOf(row, column))]);
    const missing = (text) => text === "" || text === "–";
    rows.sort(([, a], [, b]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return order === "ascending" ? compare(a, b) : compare(b, a);
    });
    body.append(...rows.map(([row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable"))
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const title = head.querySelector("span") ?? head;
      const button = make("button", title.textContent);
      button.type = "button";
      button.addEventListener("click", () => sortBy(table, head, column));
      title.replaceChildren(button);
    });

  // Values at the pointer, or at the arrow keys once a chart has the focus.
  const pointsOf = (group) => {
    const path = group.querySelector(".line").getAttribute("d");
    const texts = group.dataset.y.split("|");
    const positions = group.dataset.x.split("|");
    return path.slice(1).split("L").map((pair, place) => {
      const [x, y] = pair.split(" ").map(Number);
      return { x, y, text: texts[place], position: positions[place] };
    });
  };
  const hide = (chart) => {
    tip.hidden = true;
    chart.querySelector(".cursor")?.remove();
  };
  const show = (chart, series, x, clientX, clientY) => {
    const shown = series
      .filter(({ group }) => !group.classList.contains("off"))
      .map(({ group, points }) => ({
        group,
        point: points.reduce((best, each) => (Math.abs(each.x - x) < Math.abs(best.x - x) ? each : best)),
      }));
    if (!shown.length) return hide(chart);
    const nearest = shown.reduce((a, b) => (Math.abs(b.point.x - x) < Math.abs(a.point.x - x) ? b : a)).point;
    const cursor = chart.querySelector(".cursor") ?? chart.appendChild(
      document.createElementNS("http://www.w3.org/2000/svg", "path"));
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("d", `M${nearest.x} ${chart.dataset.top}V${chart.dataset.bottom}`);
    shown.sort((a, b) => a.point.y - b.point.y);
    const table = make("table");
    for (const { group, point } of shown) {
      const row = table.insertRow();
      const name = row.insertCell();
      const swatch = document.querySelector(`[data-toggle="${group.dataset.method}"] ~ .swatch`);
      if (swatch) name.append(swatch.cloneNode(true));
      name.append(group.dataset.label);
      row.insertCell().textContent = point.text;
    }
    const title = chart.querySelector(".axis").textContent;
    tip.replaceChildren(make("b", `${title}: ${nearest.position}`), table);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = clientX + 16 + box.width > innerWidth ? clientX - box.width - 16 : clientX + 16;
    const top = Math.min(clientY + 12, innerHeight - box.height - 8);
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, top)}px`;
    return nearest.x;
  };
  for (const chart of document.querySelectorAll("svg.chart")) {
    let series = null;
    let at = null;
    const read = () => {
      series ??= [...chart.querySelectorAll(".method")].map((group) => ({ group, points: pointsOf(group) }));
      return series;
    };
    chart.setAttribute("tabindex", "0");
    chart.querySelector("title").remove();
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      at = show(chart, read(), x, event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", () => hide(chart));
    chart.addEventListener("blur", () => hide(chart));
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") return hide(chart);
      if (!step) return;
      event.preventDefault();
      const all = read().filter(({ group }) => !group.classList.contains("off")).flatMap(({ points }) => points);
      const stops = [...new Set(all.map((point) => point.x))].sort((a, b) => a - b);
      if (!stops.length) return;
      const here = at === null ? -1 : stops.findIndex((x) => x >= at);
      const next = stops[Math.max(0, Math.min(stops.length - 1, (here < 0 ? (step > 0 ? -1 : stops.length) : here) + step))];
      const box = chart.getBoundingClientRect();
      const clientX = box.left + (next / chart.viewBox.baseVal.width) * box.width;
      at = show(chart, read(), next, clientX, box.top + box.height / 3);
    });
  }
})();

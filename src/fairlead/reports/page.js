"use strict";
// Adds to a page that can be read without it: values at the pointer, zoom, seeds, downloads, sorting, hiding, the theme.
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

  const SVG = "http://www.w3.org/2000/svg";
  const draw = (parent, name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return parent.appendChild(element);
  };
  const addTool = (bar, text, title, action) => {
    const button = make("button", text, "tool");
    button.type = "button";
    button.title = title;
    button.addEventListener("click", action);
    bar.append(button);
    return button;
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
    document.dispatchEvent(new Event("methods-shown"));
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

  // Tables are never cut off: details go below figures where the table is too wide, else every row becomes a card.
  const boxesOfTables = [...document.querySelectorAll(".scroll")];
  for (const box of boxesOfTables) {
    const heads = [...(box.querySelector("thead tr")?.cells ?? [])].map((head) => (head.querySelector("span") ?? head).textContent);
    for (const row of box.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, column) => { if (heads[column]) cell.dataset.head = heads[column]; });
  }
  const fitTables = () => {
    for (const box of boxesOfTables) {
      box.classList.remove("compact", "cards");
      for (const tighter of ["compact", "cards"])
        if (box.scrollWidth > box.clientWidth) box.classList.add(tighter);
    }
  };
  addEventListener("resize", fitTables);
  document.addEventListener("toggle", fitTables, true);
  fitTables();

  // Downloads: files are made here, nothing is sent or fetched.
  const save = (name, blob) => {
    const link = make("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const textBlob = (text, type) => new Blob([text], { type: `${type};charset=utf-8` });

  // Tables without links of their own.
  const cellsOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim().replace(/\s+/g, " ").replace(/ [↕↑↓]$/, "")));
  const csvOf = (table) => cellsOf(table)
    .map((row) => row.map((text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(","))
    .join("\r\n") + "\r\n";
  const symbols = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "×": "$\\times$", "−": "$-$",
    "–": "--", "∞": "$\\infty$", "ω": "$\\omega$", "Ω": "$\\Omega$", "<": "\\textless{}", ">": "\\textgreater{}",
  };
  const latex = (text) => text.replace(/[\\~^±×−–∞ωΩ<>&%$#_{}]/g, (sign) => symbols[sign] ?? `\\${sign}`);
  const latexOf = (table) => {
    const [first, ...rows] = cellsOf(table).map((row) => `  ${row.map(latex).join(" & ")} \\\\`);
    const columns = "l" + "r".repeat(table.rows[0].cells.length - 1);
    const rule = table.tHead ? ["  \\midrule"] : [];
    return [`\\begin{tabular}{${columns}}`, "  \\toprule", first, ...rule, ...rows, "  \\bottomrule", "\\end{tabular}", ""].join("\n");
  };
  for (const box of boxesOfTables.filter((each) => !each.closest(".tabled"))) {
    const table = box.querySelector("table");
    const name = box.getAttribute("aria-label").replace("Table: ", "").replaceAll(" ", "-");
    const bar = make("div", "", "tools");
    addTool(bar, "CSV", `Download ${name}.csv`, () => save(`${name}.csv`, textBlob(csvOf(table), "text/csv")));
    addTool(bar, "LaTeX", `Download ${name}.tex`, () => save(`${name}.tex`, textBlob(latexOf(table), "application/x-tex")));
    box.before(bar);
  }

  // Drawings as files: with the colors of the light theme written into every element, and with a legend.
  const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "text-anchor"];
  const painted = (source) => {
    const copy = source.cloneNode(true);
    const originals = [source, ...source.querySelectorAll("*")];
    const copies = [copy, ...copy.querySelectorAll("*")];
    const unseen = [];
    copies.forEach((element, place) => {
      const style = getComputedStyle(originals[place]);
      if (style.display === "none" || element.matches(".cursor, .drag")) unseen.push(element);
      for (const name of PAINT) element.setAttribute(name, style.getPropertyValue(name));
      for (const { name } of [...element.attributes])
        if (name === "class" || name === "tabindex" || name.startsWith("data-")) element.removeAttribute(name);
    });
    for (const element of unseen) element.remove();
    return copy;
  };
  const placed = (sheet, source, x, y, width, height) => {
    const copy = painted(source);
    for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, value);
    sheet.append(copy);
  };
  const written = (sheet, x, y, text, size = 12) =>
    draw(sheet, "text", { x, y, "font-size": size, fill: "#1d2126" }, text);
  // The size and the parts of a drawing: a chart with its legend, or rows with their names.
  const chartSheet = (sheet, figure) => {
    const chart = [...figure.querySelectorAll(".chart")].find((each) => each.getClientRects().length);
    const { width, height } = chart.viewBox.baseVal;
    written(sheet, 8, 18, figure.querySelector("h3").textContent, 14);
    placed(sheet, chart, 0, 26, width, height);
    let [x, y] = [54, height + 44];
    const groups = [...chart.querySelectorAll(".method:not(.off)")];
    for (const { dataset } of groups.length > 1 ? groups : []) {
      const room = 46 + 7 * dataset.label.length;
      if (x > 54 && x + room > width) [x, y] = [54, y + 18];
      placed(sheet, document.querySelector(`[data-toggle="${dataset.method}"] ~ .swatch`), x, y - 10, 28, 12);
      written(sheet, x + 34, y, dataset.label);
      x += room;
    }
    return [width, y + 12];
  };
  const rowsSheet = (sheet, list) => {
    const rows = [...list.querySelectorAll("li:not(.off)")];
    const names = Math.max(...rows.map((row) => (row.querySelector(".label")?.textContent ?? "").length)) * 7 + 50;
    let y = 8;
    for (const row of rows) {
      const [label, swatch] = [row.querySelector(".label"), row.querySelector(".swatch")];
      const drawing = row.querySelector(".row, .row-axis");
      const height = drawing?.viewBox.baseVal.height ?? 26;
      if (swatch) placed(sheet, swatch, 8, y + 7, 28, 12);
      if (label) written(sheet, 42, y + 17, label.textContent);
      if (drawing) placed(sheet, drawing, names, y, drawing.viewBox.baseVal.width, height);
      y += height;
    }
    return [names + 410, y + 8];
  };
  const drawingOf = (figure) => {
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    const sheet = document.createElementNS(SVG, "svg");
    draw(sheet, "rect", { width: "100%", height: "100%", fill: "#ffffff" });
    const [width, height] = figure.matches("figure") ? chartSheet(sheet, figure) : rowsSheet(sheet, figure);
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif" }))
      sheet.setAttribute(name, value);
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    return { text: new XMLSerializer().serializeToString(sheet), width, height };
  };
  const saveSvg = (figure) => save(`${figure.dataset.file}.svg`, textBlob(drawingOf(figure).text, "image/svg+xml"));
  const savePng = (figure) => {
    const { text, width, height } = drawingOf(figure);
    const picture = new Image();
    picture.addEventListener("load", () => {
      const canvas = make("canvas");
      [canvas.width, canvas.height] = [3 * width, 3 * height];
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(`${figure.dataset.file}.png`, blob), "image/png");
    });
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };
  for (const figure of document.querySelectorAll("figure, .standing:not(.alone), .strips")) {
    const bar = make("div", "", "tools");
    if (figure.matches("figure")) {
      const enlarge = addTool(bar, "Enlarge", "Draw this figure over the whole width", () => {
        enlarge.textContent = figure.classList.toggle("large") ? "Shrink" : "Enlarge";
        figure.scrollIntoView({ block: "nearest" });
      });
      figure.prepend(bar);
    } else {
      figure.before(bar);
    }
    addTool(bar, "SVG", `Download ${figure.dataset.file}.svg`, () => saveSvg(figure));
    addTool(bar, "PNG", `Download ${figure.dataset.file}.png`, () => savePng(figure));
  }

  // Values beside an axis, as the page writes them.
  const withUnit = (value, units) => {
    let rank = 0;
    while (Math.abs(value) >= 1000 && rank < units.length - 1) [value, rank] = [value / 1000, rank + 1];
    return `${Number(value.toPrecision(4))} ${units[rank]}`.trim();
  };
  const tickText = (value, kind) => {
    if (kind === "share" || kind === "points") return `${Number((100 * value).toPrecision(5))}${kind === "share" ? " %" : ""}`;
    if (kind === "bytes") return withUnit(value, ["B", "kB", "MB", "GB", "TB"]);
    if (kind === "seconds") {
      const [length, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([each]) => Math.abs(value) >= 2 * each || each === 1);
      return `${Number((value / length).toPrecision(4))} ${unit}`;
    }
    if (kind === "count" && value >= 10000) return withUnit(value, ["", "k", "M", "G", "T"]);
    return value && (Math.abs(value) >= 10000 || Math.abs(value) < 0.001) ? value.toExponential(1) : `${Number(value.toPrecision(4))}`;
  };
  const evenTicks = (low, high, count) => {
    const least = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= least * (1 - 1e-9));
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
  };
  // A scale between pixels of the chart as it was drawn and values.
  const scaleOf = (text, start, end) => {
    const [low, high, kind, shape] = text.split(" ");
    const [to, from] = shape === "log" ? [Math.log10, (value) => 10 ** value] : [Number, Number];
    const [a, b] = [to(Number(low)), to(Number(high))];
    return {
      kind,
      value: (pixel) => from(a + ((pixel - start) / (end - start)) * (b - a)),
      pixel: (value) => start + ((to(value) - a) / (b - a)) * (end - start),
      ticks: (one, other) => {
        const [least, most] = [Math.min(one, other), Math.max(one, other)];
        const decades = shape === "log" && most / least >= 10
          ? Array.from({ length: 40 }, (_, place) => place - 20).flatMap((power) => [1, 2, 5].map((factor) => Number((factor * 10 ** power).toPrecision(3))))
          : evenTicks(least, most, 5);
        return decades.filter((value) => value >= least && value <= most)
          .filter((value) => kind !== "count" || Number.isInteger(value))
          .filter((value) => kind !== "share" || (value >= 0 && value <= 1));
      },
    };
  };
  const PAIR = /([ML])(-?[\d.]+) (-?[\d.]+)/g;
  const pairsOf = (path) => [...path.matchAll(PAIR)].map(([, , x, y]) => [Number(x), Number(y)]);

  // A chart that can be zoomed: `span` holds the first and last pixel shown, of the chart as it was drawn.
  const zoomable = (chart) => {
    const [left, right, top, bottom] = ["left", "right", "top", "bottom"].map((side) => Number(chart.dataset[side]));
    const across = scaleOf(chart.dataset.across, left, right);
    const up = scaleOf(chart.dataset.up, bottom, top);
    const drawn = new Map();
    const frame = chart.querySelector(".frame");
    const frameDrawn = frame.cloneNode(true);
    let span = null;

    const keep = (path) => { if (!drawn.has(path)) drawn.set(path, path.getAttribute("d")); };
    const heights = (selector, [from, to]) => [...chart.querySelectorAll(`.method:not(.off) ${selector}`)]
      .flatMap((path) => pairsOf(drawn.get(path))).filter(([x]) => x >= from - 0.01 && x <= to + 0.01).map(([, y]) => y);
    // Fits the means, and the intervals as far as half the range of the means, as the page does.
    const fitted = (shown) => {
      const lines = heights(".line, .seed", shown);
      if (!lines.length) return [top, bottom];
      const [high, low] = [Math.min(...lines), Math.max(...lines)];
      const reach = (low - high) / 2 || 20;
      const bands = chart.closest(".crowded") ? [] : heights(".band", shown);
      const all = [...lines, ...bands.map((y) => Math.min(Math.max(y, high - reach), low + reach))];
      const room = 0.04 * (Math.max(...all) - Math.min(...all)) || 20;
      return [Math.min(...all) - room, Math.max(...all) + room];
    };
    const redraw = () => {
      for (const path of chart.querySelectorAll(".method path")) keep(path);
      const some = chart.querySelector(".method.off") && chart.querySelector(".method:not(.off)");
      const isDrawn = !span && !some;
      const [from, to] = span ?? [left, right];
      const [high, low] = isDrawn ? [top, bottom] : fitted([from, to]);
      const x = (pixel) => left + ((pixel - from) / (to - from)) * (right - left);
      const y = (pixel) => top + ((pixel - high) / (low - high)) * (bottom - top);
      for (const [path, original] of drawn)
        path.setAttribute("d", isDrawn ? original : original.replace(PAIR, (_, letter, a, b) => `${letter}${x(Number(a)).toFixed(1)} ${y(Number(b)).toFixed(1)}`));
      frame.replaceChildren(...frameDrawn.cloneNode(true).childNodes);
      chart.closest("figure").classList.toggle("zoomed", Boolean(span));
      if (isDrawn) return;
      for (const part of [...frame.children]) if (!part.matches(".floor, .axis")) part.remove();
      for (const value of up.ticks(up.value(low), up.value(high))) {
        const height = y(up.pixel(value));
        frame.prepend(draw(frame, "path", { d: `M${left} ${height}H${right}` }));
        draw(frame, "text", { x: left - 7, y: height + 4, "text-anchor": "end" }, tickText(value, up.kind).replace("-", "−"));
      }
      for (const value of across.ticks(across.value(from), across.value(to))) {
        const place = x(across.pixel(value));
        draw(frame, "path", { class: "stub", d: `M${place} ${bottom}v4` });
        draw(frame, "text", { x: place, y: bottom + 17, "text-anchor": "middle" }, tickText(value, across.kind));
      }
    };
    return {
      left, right, top, bottom, redraw,
      // From one pixel of the chart as it is to another; null: as it was drawn.
      zoom: (range) => {
        const [from, to] = span ?? [left, right];
        const back = (pixel) => from + ((pixel - left) / (right - left)) * (to - from);
        const wanted = range?.map((pixel) => Math.min(Math.max(back(pixel), left), right));
        span = !wanted || wanted[1] - wanted[0] > (right - left) * 0.999 ? null : wanted;
        redraw();
      },
      showSeeds: (shown) => {
        for (const path of chart.querySelectorAll(".seed")) { drawn.delete(path); path.remove(); }
        for (const group of shown ? chart.querySelectorAll("[data-seeds]") : []) {
          const line = group.querySelector(".line");
          keep(line);
          const places = pairsOf(drawn.get(line)).map(([x]) => x);
          for (const run of group.dataset.seeds.split("|")) {
            const points = run.split(" ").map((y, place) => `${places[place]} ${y}`);
            // A run of one point is a dot: a line of no length with round ends.
            const path = draw(group, "path", { class: "seed", d: `M${points.join("L")}h0` });
            group.prepend(path);
          }
        }
        redraw();
      },
    };
  };

  // Values at the pointer, or at the arrow keys once a chart has the focus.
  const pointsOf = (group) => {
    const path = group.querySelector(".line").getAttribute("d");
    const texts = group.dataset.y.split("|");
    const positions = group.dataset.x.split("|");
    return pairsOf(path).map(([x, y], place) => ({ x, y, text: texts[place], position: positions[place] }));
  };
  const hide = (chart) => {
    tip.hidden = true;
    chart.querySelector(".cursor")?.remove();
  };
  const show = (chart, series, x, clientX, clientY) => {
    const shown = series
      .filter(({ group, points }) => points.length && !group.classList.contains("off"))
      .map(({ group, points }) => ({
        group,
        point: points.reduce((best, each) => (Math.abs(each.x - x) < Math.abs(best.x - x) ? each : best)),
      }));
    if (!shown.length) return hide(chart);
    const nearest = shown.reduce((a, b) => (Math.abs(b.point.x - x) < Math.abs(a.point.x - x) ? b : a)).point;
    const cursor = chart.querySelector(".cursor") ?? draw(chart, "path", { class: "cursor" });
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
  const zoomables = [];
  for (const chart of document.querySelectorAll("svg.chart")) {
    const view = zoomable(chart);
    zoomables.push(view);
    let series = null;
    let at = null;
    let start = null;
    const inside = (x) => Math.min(Math.max(x, view.left), view.right);
    const read = () => {
      series ??= [...chart.querySelectorAll(".method")].map((group) => ({
        group,
        points: pointsOf(group).filter(({ x }) => x >= view.left - 1 && x <= view.right + 1),
      }));
      return series;
    };
    const zoom = (range) => {
      view.zoom(range);
      [series, at] = [null, null];
      hide(chart);
    };
    const placeOf = (event) => {
      const box = chart.getBoundingClientRect();
      return ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    };
    document.addEventListener("methods-shown", () => { series = null; });
    chart.setAttribute("tabindex", "0");
    chart.querySelector("title").remove();
    chart.addEventListener("pointerdown", (event) => {
      if (event.button === 0) start = inside(placeOf(event));
    });
    chart.addEventListener("pointermove", (event) => {
      const x = placeOf(event);
      if (start === null) {
        at = show(chart, read(), x, event.clientX, event.clientY);
        return;
      }
      hide(chart);
      if (!chart.hasPointerCapture(event.pointerId)) chart.setPointerCapture(event.pointerId);
      const area = chart.querySelector(".drag") ?? draw(chart, "rect", { class: "drag", y: view.top, height: view.bottom - view.top });
      area.setAttribute("x", Math.min(start, inside(x)));
      area.setAttribute("width", Math.abs(inside(x) - start));
    });
    chart.addEventListener("pointerup", (event) => {
      const range = [start, inside(placeOf(event))].sort((a, b) => a - b);
      chart.querySelector(".drag")?.remove();
      if (start !== null && range[1] - range[0] > 6) zoom(range);
      start = null;
    });
    chart.addEventListener("pointercancel", () => {
      chart.querySelector(".drag")?.remove();
      start = null;
    });
    chart.addEventListener("dblclick", () => zoom(null));
    chart.addEventListener("pointerleave", () => hide(chart));
    chart.addEventListener("blur", () => hide(chart));
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const factor = { "+": 0.5, "-": 2 }[event.key];
      if (event.key === "Escape") return hide(chart);
      if (event.key === "0") return zoom(null);
      if (factor) {
        const [middle, half] = [at ?? (view.left + view.right) / 2, ((view.right - view.left) / 2) * factor];
        return zoom([middle - half, middle + half]);
      }
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
  document.addEventListener("methods-shown", () => { for (const view of zoomables) view.redraw(); });
  for (const box of document.querySelectorAll("[data-seeds-shown]")) {
    const charts = [...box.closest("section").querySelectorAll("svg.chart")];
    const all = [...document.querySelectorAll("svg.chart")];
    const showSeeds = () => { for (const chart of charts) zoomables[all.indexOf(chart)].showSeeds(box.checked); };
    box.addEventListener("change", showSeeds);
    if (box.checked) showSeeds();
  }
  // A reload may bring back boxes as they were left.
  showMethods();
})();

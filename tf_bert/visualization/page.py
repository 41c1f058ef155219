"""Writes attention as one self-contained HTML page."""

import base64
import json
import os
from collections.abc import Sequence

import numpy as np

from tf_bert.files import atomic_writer
from tf_bert.visualization.attention import AttentionMap

TITLES = {
    "encoder": "encoder: each token to all tokens",
    "decoder": "decoder: each token to those before",
    "cross": "encoder-decoder: each target token to the source",
}


def attention_page(maps: Sequence[AttentionMap], title: str = "Attention") -> str:
    """The page, with a choice of layer and head, as a matrix and as lines between the tokens.

    Args:
        maps: at least one; the first is shown at first.
        title: of the page.

    Example:
        >>> some = AttentionMap("cross", [np.ones((1, 1, 1, 2), "float32") / 2], ["a"], ["b", "</script>"])
        >>> page = attention_page([some])
        >>> "http" in page, page.count("</script>")
        (False, 1)
    """
    data = {
        "title": title,
        "maps": [
            {
                "name": TITLES.get(some.name, some.name),
                "rows": some.rows,
                "columns": some.columns,
                "heads": [layer.shape[1] for layer in some.layers],
                "layers": [_packed(layer[0]) for layer in some.layers],
            }
            for some in maps
        ],
    }
    # "<" could end the script in which the data stand.
    return _PAGE.replace("DATA", json.dumps(data, ensure_ascii=True).replace("<", "\\u003c"))


def write_attention_page(path: str | os.PathLike, maps: Sequence[AttentionMap], title: str = "Attention") -> None:
    """Writes the page of `attention_page`."""
    with atomic_writer(path, "w") as file:
        file.write(attention_page(maps, title))


def _packed(weights: np.ndarray) -> str:
    """Weights [N, T, S] from 0 to 1 as unsigned 16-bit integers, in base 64: a fifth of their digits."""
    whole = np.round(np.clip(weights, 0, 1) * 65535).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode("ascii")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Attention</title>
<style>
  body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #1b1f24; background: #fff; }
  h1 { font-size: 1.2em; margin: 0 0 .7em; }
  .controls { display: flex; flex-wrap: wrap; gap: 1em; margin-bottom: .6em; align-items: center; }
  select { font: inherit; padding: .15em .3em; }
  #says { min-height: 1.5em; color: #57606a; margin-bottom: .4em; }
  .views { display: flex; flex-wrap: wrap; gap: 3em; align-items: flex-start; }
  h2 { font-size: 1em; margin: 0 0 .5em; font-weight: 600; }
  svg text { font: 12px ui-monospace, monospace; fill: #1b1f24; }
  svg text.chosen { font-weight: bold; fill: #0a3069; }
  svg .token { cursor: pointer; }
  svg rect.cell { stroke: #d0d7de; stroke-width: .5; }
</style>
</head>
<body>
<h1 id="title"></h1>
<div class="controls">
  <label>attention <select id="map"></select></label>
  <label>layer <select id="layer"></select></label>
  <label>head <select id="head"></select></label>
</div>
<div id="says"></div>
<div class="views">
  <div><h2>Weights: rows look at columns</h2><svg id="matrix"></svg></div>
  <div><h2>Lines: point at a token to see its own</h2><svg id="lines"></svg></div>
</div>
<script>
"use strict";
const data = DATA;
const $ = id => document.getElementById(id);
let chosen = null;  // {side, index} of the token pointed at

function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const view = new DataView(bytes.buffer), numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = view.getUint16(2 * i, true) / 65535;
  return numbers;
}

function fill(select, names, index) {
  select.replaceChildren(...names.map((name, i) => {
    const option = document.createElement("option");
    option.textContent = name;
    option.value = i;
    return option;
  }));
  select.value = index;
}

function draw(parent, kind, attributes, text) {
  const element = document.createElementNS($("matrix").namespaceURI, kind);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function weights() {  // of the chosen layer and head: [T][S]
  const map = data.maps[$("map").value], layer = +$("layer").value, head = +$("head").value - 1;
  const all = unpack(map.layers[layer]), T = map.rows.length, S = map.columns.length, N = map.heads[layer];
  return map.rows.map((_, t) => map.columns.map((_, s) => {
    if (head >= 0) return all[(head * T + t) * S + s];
    let sum = 0;
    for (let n = 0; n < N; n++) sum += all[(n * T + t) * S + s];
    return sum / N;
  }));
}

function width(tokens) { return 12 + 7.4 * Math.max(...tokens.map(token => [...token].length)); }

function matrix(map, w) {
  const svg = $("matrix"), cell = 22, left = width(map.rows), top = width(map.columns);
  svg.replaceChildren();
  svg.setAttribute("width", left + cell * map.columns.length + 4);
  svg.setAttribute("height", top + cell * map.rows.length + 4);
  map.columns.forEach((token, s) => {
    const x = left + cell * s + 15;
    draw(svg, "text", {transform: `translate(${x},${top - 6}) rotate(-90)`}, token);
  });
  map.rows.forEach((token, t) => {
    draw(svg, "text", {x: left - 6, y: top + cell * t + 15, "text-anchor": "end"}, token);
    map.columns.forEach((column, s) => {
      const box = draw(svg, "rect", {class: "cell", x: left + cell * s, y: top + cell * t, width: cell, height: cell,
        fill: `rgba(9, 105, 218, ${w[t][s]})`});
      box.addEventListener("mouseenter", () => {
        $("says").textContent = `${token} looks at ${column}: ${w[t][s].toFixed(3)}`;
      });
    });
  });
}

function lines(map, w) {
  const svg = $("lines"), step = 20, left = width(map.rows), gap = 180;
  svg.replaceChildren();
  svg.setAttribute("width", left + gap + width(map.columns));
  svg.setAttribute("height", 10 + step * Math.max(map.rows.length, map.columns.length));
  const y = i => 15 + step * i;
  map.rows.forEach((_, t) => map.columns.forEach((_, s) => {
    if (chosen && chosen.index !== (chosen.side === "rows" ? t : s)) return;
    if (w[t][s] < 0.02) return;
    draw(svg, "line", {x1: left, y1: y(t) - 4, x2: left + gap, y2: y(s) - 4, stroke: "#0969da", "stroke-width": 2,
      "stroke-opacity": w[t][s]});
  }));
  for (const [side, x, anchor] of [["rows", left - 6, "end"], ["columns", left + gap + 6, "start"]]) {
    map[side].forEach((token, i) => {
      const own = chosen && chosen.side === side && chosen.index === i;
      const text = draw(svg, "text", {class: own ? "token chosen" : "token", x: x, y: y(i), "text-anchor": anchor},
        token);
      text.addEventListener("mouseenter", () => { if (!own) { chosen = {side: side, index: i}; lines(map, w); } });
    });
  }
  svg.onmouseleave = () => { if (chosen) { chosen = null; lines(map, w); } };
}

function show() {
  const map = data.maps[$("map").value], w = weights();
  chosen = null;
  $("says").textContent = "";
  matrix(map, w);
  lines(map, w);
}

function chooseLayer() {
  const map = data.maps[$("map").value], heads = map.heads[+$("layer").value];
  const names = Array.from({length: heads}, (_, i) => String(i));
  fill($("head"), ["mean of all", ...names], 0);
  show();
}

function chooseMap() {
  const layers = data.maps[$("map").value].layers.length;
  fill($("layer"), Array.from({length: layers}, (_, i) => String(i)), layers - 1);
  chooseLayer();
}

document.title = data.title;
$("title").textContent = data.title;
fill($("map"), data.maps.map(map => map.name), 0);
$("map").onchange = chooseMap;
$("layer").onchange = chooseLayer;
$("head").onchange = show;
chooseMap();
</script>
</body>
</html>
"""

"use strict";
/* Makes elements. Texts become text nodes and nothing else: no file of the page gives text to a parser of HTML. */

const byId = id => document.getElementById(id);

/* make("button", {class: "quiet", onclick: f}, icon("copy"), "Copy"): attributes that are functions listen to events;
 * false, null and undefined set nothing. Children are elements, texts, null, or arrays of these: a long text has more of
 * them than a call can have arguments. */
function make(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
  for (const c of children.flat()) if (c !== null && c !== undefined && c !== false) e.append(c);
  return e;
}

function icon(name) {
  const svg = byId("icon").content.firstElementChild.cloneNode(true);
  svg.firstElementChild.setAttribute("href", "#i-" + name);
  return svg;
}

/* A button with an icon. Its label is read aloud and shown as a tip, and beside the icon if it is `labelled`. */
function iconButton(name, label, onclick, labelled) {
  return make(
    "button",
    {
      type: "button",
      class: labelled ? "quiet labelled" : "quiet",
      "aria-label": label,
      title: labelled ? null : label,
      onclick,
    },
    icon(name),
    labelled ? make("span", {"aria-hidden": "true"}, labelled) : null,
  );
}

/* Outside of https and localhost a page has no clipboard. */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", {class: "visually-hidden", "aria-hidden": "true"});
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("the browser does not allow copying");
}

/* Copies what text() gives, and shows for a moment that it did. */
function copyButton(label, text, labelled) {
  const button = iconButton(
    "copy",
    label,
    async () => {
      try {
        await copyText(text());
        button.replaceChild(icon("check"), button.firstElementChild);
        announce("Copied");
      } catch (error) {
        announce("Not copied: " + error.message);
      }
      setTimeout(() => button.replaceChild(icon("copy"), button.firstElementChild), 1500);
    },
    labelled,
  );
  return button;
}

/* For screen readers. */
function announce(text) {
  byId("status").textContent = text;
}

/* 12345 as 12,345 in the reader's language. */
const formatCount = n => Number(n).toLocaleString();
const formatSeconds = s =>
  s < 0.0095
    ? (s * 1e3).toFixed(1) + " ms"
    : s < 0.995
      ? Math.round(s * 1e3) + " ms"
      : s < 99.5
        ? s.toFixed(s < 9.95 ? 2 : 1) + " s"
        : Math.round(s) + " s";
const formatPercent = share => (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + " %";
function formatBytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) ((n /= 1000), i++);
  return n.toFixed(i > 0 && n < 9.95 ? 1 : 0) + " " + units[i];
}

/* 128 random bits; crypto.randomUUID is missing outside of https and localhost. */
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, "0")).join("");
}

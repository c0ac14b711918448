/* What the page says beside the conversation: banners above it, and dialogs. */

/* ---- banners ---- */

const banners = {};

/* One for each name. actions: [label, function]. */
function showBanner(name, text, actions = [], isCalm = false) {
  const banner = make(
    "div",
    {class: isCalm ? "banner calm" : "banner"},
    make("p", null, text),
    ...actions.map(([label, f]) => make("button", {type: "button", onclick: f}, label)),
  );
  if (banners[name]) banners[name].replaceWith(banner);
  else byId("banners").append(banner);
  banners[name] = banner;
}

function hideBanner(name) {
  if (banners[name]) banners[name].remove();
  delete banners[name];
}

/* ---- dialogs ---- */

/* Resolves with the text of its field when it is confirmed, else null. value undefined: it has no field. */
function ask(title, text, ok, value) {
  const dialog = byId("ask"),
    field = byId("ask-value");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-ok").textContent = ok;
  field.hidden = byId("ask-label").hidden = value === undefined;
  field.value = value || "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise(resolve =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok" ? field.value : null), {once: true}),
  );
}

let keyAsked = null;

/* True: there is another key to try. */
function askKey() {
  if (keyAsked) return keyAsked;
  const dialog = byId("key-dialog"),
    field = byId("key");
  byId("key-wrong").hidden = !protocol.key;
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  keyAsked = new Promise(resolve =>
    dialog.addEventListener(
      "close",
      () => {
        keyAsked = null;
        const isGiven = dialog.returnValue === "ok" && field.value.trim() !== "";
        if (isGiven) protocol.setKey(field.value.trim());
        else showBanner("server", "The server asks for an API key.", [["Enter the key", connect]]);
        resolve(isGiven);
      },
      {once: true},
    ),
  );
  return keyAsked;
}
